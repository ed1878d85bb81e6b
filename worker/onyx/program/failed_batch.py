"""The batch at which a job has failed, kept beside the report, so that it can be run again at home.

All of it, if that is small, because a function may get whole batches; else what is around the
segment that failed, as much as fits. Segments are as the task has them then: a function that has
changed what it was given before it raised has changed these. Copies of each batch, for the one that
fails, were rejected.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from onyx.base.structs import prepared
from onyx.codec.segments import decode, encode
from onyx.codec.streams import read_stream
from onyx.errors import OnyxError
from onyx.flow.batch import Batch, Segments, as_shown, format_of, part_of
from onyx.flow.columns.record_batch import Columns

BYTES_MAX = 131_072
"""All segments; the document has them in base 64, a third more."""
SPARK_BYTES_MAX = 8_192
"""Segments that come out of a query of Spark, in the text of an exception."""


@prepared
class FailedBatch(msgspec.Struct, frozen=True):
    """The segments that are kept."""

    format: str
    """`dicts` or `arrow`: what `segments` are."""
    upstream: str | None
    """The task that has sent them, where that matters."""
    first: int
    """The index in the batch of the first one."""
    count: int
    of: int
    """How many segments the batch had."""
    segments: bytes
    """In msgpack, or a stream of Arrow."""


def kept(batch: Batch, index: int, bytes_max: int) -> dict[str, Any] | None:
    """The segments of a batch that are kept, as plain data; None if not even one may be.

    Args:
        index: of the segment that has failed, in the batch.
    """
    whole = len(batch)
    count = whole
    try:
        while count:
            first = min(max(index - count // 2, 0), whole - count)
            segments = part_of(batch.segments, first, first + count)
            data = format_of(segments).choose(_of_dicts, _of_columns)(segments)
            if len(data) <= bytes_max:
                kind = "arrow" if isinstance(segments, Columns) else "dicts"
                found = FailedBatch(kind, batch.upstream, first, count, whole, data)
                plain: dict[str, Any] = msgspec.to_builtins(found)
                return plain
            count = min(count // 2, max(count * bytes_max // len(data), 1))
    except (OnyxError, pa.ArrowException):  # a function may leave what cannot be written in a dict
        pass
    return None


def segments_of(found: FailedBatch) -> Segments:
    """The segments, whoever has written them.

    Raises:
        SegmentError: they are damaged.
    """
    return read_stream(found.segments) if found.format == "arrow" else decode(found.segments)


def _of_dicts(segments: list[dict[str, Any]]) -> bytes:
    return encode(as_shown(segments))


def _of_columns(columns: Columns) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.record_batch.schema) as stream:
        stream.write_batch(columns.record_batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
