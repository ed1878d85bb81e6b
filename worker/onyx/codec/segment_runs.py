"""A run of segments of one form as bytes: msgpack for dicts, Arrow for columns beside a schema, and
for dicts that are made of two whose bytes are there (`merged`)."""

from __future__ import annotations

from onyx.codec import columns as columns_codec
from onyx.codec.merged import dicts_of_merged, is_merged
from onyx.codec.segments import decode, encode
from onyx.flow.batch import EncodedRun, Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns


def encode_run(segments: Segments) -> EncodedRun:
    """The bytes of a run.

    Raises:
        SegmentError: a value has no encoding, or the schema is too large.
    """
    return format_of(segments).choose(_of_dicts, _of_columns)(segments)


def decode_run(payload: bytes, schema: bytes) -> Segments:
    """The run of `encode_run`.

    Raises:
        SegmentError: these are not its bytes.
    """
    if not schema:
        return decode(payload)
    columns = columns_codec.decode(payload, columns_codec.decode_schema(schema))
    if is_merged(columns.record_batch.schema):
        return dicts_of_merged(columns.record_batch)
    return columns


def _of_dicts(segments: list[Segment]) -> EncodedRun:
    return EncodedRun(encode(segments), b"")


def _of_columns(columns: Columns) -> EncodedRun:
    schema = columns_codec.encode_schema(columns.record_batch.schema)
    return EncodedRun(columns_codec.encode(columns), schema)
