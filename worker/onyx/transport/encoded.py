"""A batch as bytes: what links queue, and what waits in an inbox until its task takes it.

Segments are dicts or columns; both have the same columns of roots and ids beside them. The schema
of columns is no part of the bytes: a channel carries it once (`sending`, `receiving`).
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from onyx.base.runs import Numbers
from onyx.codec import columns as columns_codec
from onyx.codec import segments as codec
from onyx.errors import SegmentError
from onyx.flow.batch import Batch, Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.transport.interface import Partial


class Encoded(msgspec.Struct, frozen=True):
    """A batch as it came from the network, or goes there."""

    segments: int
    payload: bytes
    roots: bytes
    ids: bytes
    columnar: bool = False
    """The payload is a batch of columns."""
    folded: bool = False
    """The payload is states of windows, in place of the segments."""
    laps: bytes = b""
    schema: pa.Schema | None = None
    """The schema of columns; None while it is not known, as in a frame that has just come."""

    def of_schema(self, schema: pa.Schema) -> Encoded:
        """Encoded: batch of columns, with their schema."""
        return replace(self, schema=schema)

    def decode(self) -> Batch | Partial:
        """Raises SegmentError when the bytes are not what they claim to be."""
        if self.folded:
            return self._partial()
        segments = self._segments()
        if len(segments) != self.segments:
            raise SegmentError(f"{len(segments)} segments came, {self.segments} were announced")
        return Batch(
            segments,
            self.roots_column(),
            codec.decode_column(self.ids, self.segments),
            laps=codec.decode_column(self.laps, self.segments),
        )

    def roots_column(self) -> Numbers | None:
        """The roots alone; None under at-most-once. Raises SegmentError like `decode`."""
        return codec.decode_column(self.roots, self.segments)

    def _partial(self) -> Partial:
        roots, ids = self.roots_column(), codec.decode_column(self.ids, self.segments)
        if roots is None or ids is None:
            raise SegmentError("states of windows came without lineage")
        return Partial(self.payload, roots, ids)

    def _segments(self) -> Segments:
        if not self.columnar:
            return codec.decode(self.payload)
        if self.schema is None:
            raise SegmentError("a batch of columns came without their schema")
        return columns_codec.decode(self.payload, self.schema)


def encoded_partial(partial: Partial) -> Encoded:
    """States of windows as bytes."""
    roots, ids = codec.encode_column(partial.roots), codec.encode_column(partial.ids)
    return Encoded(len(partial), partial.states, roots, ids, folded=True)


def encoded(batch: Batch) -> Encoded:
    """A batch as bytes, of whatever size they are.

    Raises:
        SegmentError: a segment cannot be encoded.
    """
    encode = format_of(batch.segments).choose(_of_dicts, _of_columns)
    return with_lineage(encode(batch.segments), batch)


def with_lineage(item: Encoded, batch: Batch) -> Encoded:
    """The segments of a batch with what else it has of each."""
    return replace(
        item,
        roots=codec.encode_column(batch.roots),
        ids=codec.encode_column(batch.ids),
        laps=codec.encode_column(batch.laps),
    )


def _of_dicts(segments: list[Segment]) -> Encoded:
    return Encoded(len(segments), codec.encode(segments), b"", b"")


def _of_columns(columns: Columns) -> Encoded:
    payload, schema = columns_codec.encode(columns), columns.record_batch.schema
    return Encoded(len(columns), payload, b"", b"", columnar=True, schema=schema)


def through_bytes(batch: Batch | Partial) -> Batch | Partial:
    """What arrives when a batch crosses the network: for transports without one."""
    item = encoded_partial(batch) if isinstance(batch, Partial) else encoded(batch)
    if item.schema is not None:
        payload = columns_codec.encode_schema(item.schema)
        item = item.of_schema(columns_codec.decode_schema(payload))
    return item.decode()
