"""Batches and columns cut so that each piece fits in one frame. Lists are splittable; a single
segment is not."""

from __future__ import annotations

from collections.abc import Iterator

from onyx.codec import segments as codec
from onyx.codec.refusals import SEGMENT_BYTES_MAX
from onyx.flow.batch import U64, Batch, as_dicts
from onyx.path_names import CHARACTERS_MAX
from onyx.transport.frames.packets import FRAME_OVERHEAD_BYTES
from onyx.transport.inbox import Encoded

_LINEAGE_BYTES = 2 * codec.COLUMN_VALUE_BYTES


def encoded_pieces(batch: Batch, frame_bytes_max: int) -> Iterator[Encoded]:
    """The batch as one or more encoded batches, in order, each at most one frame.

    Raises:
        SegmentError: a segment cannot be encoded, or one alone is larger than a frame.
    """
    limit = frame_bytes_max - FRAME_OVERHEAD_BYTES
    segments = as_dicts(batch.segments)
    payload = codec.encode(segments, min(SEGMENT_BYTES_MAX, limit - _LINEAGE_BYTES))
    if len(payload) + _LINEAGE_BYTES * len(batch) <= limit:
        yield Encoded(
            len(batch), payload, codec.encode_column(batch.roots), codec.encode_column(batch.ids)
        )
        return
    half = len(batch) // 2
    for part in (slice(None, half), slice(half, None)):
        roots = None if batch.roots is None else batch.roots[part]
        ids = None if batch.ids is None else batch.ids[part]
        yield from encoded_pieces(Batch(segments[part], roots, ids), frame_bytes_max)


def column_slices(column: U64, frame_bytes_max: int) -> Iterator[slice]:
    """Slices of two columns of this length (acks) that fit in a frame with their identifiers."""
    overhead = FRAME_OVERHEAD_BYTES + 2 * CHARACTERS_MAX
    step = max(1, (frame_bytes_max - overhead) // _LINEAGE_BYTES)
    for start in range(0, len(column), step):
        yield slice(start, start + step)
