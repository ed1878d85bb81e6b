"""A run of segments of one form as bytes: msgpack for dicts, Arrow for columns beside a schema."""

from __future__ import annotations

from typing import NamedTuple

from onyx.codec import columns as columns_codec
from onyx.codec.segments import decode, encode
from onyx.flow.batch import Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns


class EncodedRun(NamedTuple):
    """A run as bytes."""

    payload: bytes
    schema: bytes
    """Empty for dicts."""


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
    return columns_codec.decode(payload, columns_codec.decode_schema(schema))


def _of_dicts(segments: list[Segment]) -> EncodedRun:
    return EncodedRun(encode(segments), b"")


def _of_columns(columns: Columns) -> EncodedRun:
    schema = columns_codec.encode_schema(columns.record_batch.schema)
    return EncodedRun(columns_codec.encode(columns), schema)
