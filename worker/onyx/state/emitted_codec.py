"""Emissions of a shard as bytes: a list of runs, each of dicts or of columns with their schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onyx.codec import columns as columns_codec
from onyx.codec.values import decode_values, encode_values
from onyx.flow.batch import Segment, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.state.chunks import EmittedRun


def encode_emitted(runs: Sequence[EmittedRun]) -> bytes:
    """The bytes of some runs.

    Raises:
        SegmentError: a value has no encoding.
    """
    return encode_values([[each.first, each.child, *_stored(each)] for each in runs])


def decode_emitted(data: bytes) -> Iterator[EmittedRun]:
    """The runs of `encode_emitted`.

    Raises:
        SegmentError: the bytes are not those of runs.
    """
    for first, child, *stored in decode_values(data):
        yield EmittedRun(first, _segments(*stored), child)


def _stored(run: EmittedRun) -> list[Any]:
    return format_of(run.segments).choose(_of_dicts, _of_columns)(run.segments)


def _of_dicts(segments: list[Segment]) -> list[Any]:
    return [segments]


def _of_columns(columns: Columns) -> list[Any]:
    schema = columns_codec.encode_schema(columns.record_batch.schema)
    return [columns_codec.encode(columns), schema]


def _segments(stored: Any, schema: bytes | None = None) -> list[Segment] | Columns:
    if schema is None:
        dicts: list[Segment] = stored
        return dicts
    return columns_codec.decode(stored, columns_codec.decode_schema(schema))
