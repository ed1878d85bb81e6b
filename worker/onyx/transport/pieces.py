"""Batches and columns cut so that each piece fits in one frame. A single segment cannot be cut."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from onyx.base.path_names import CHARACTERS_MAX
from onyx.base.runs import Numbers
from onyx.codec import columns as columns_codec
from onyx.codec import segments as codec
from onyx.codec.columns import ROWS_MAX
from onyx.codec.refusals import SEGMENT_BYTES_MAX
from onyx.codec.values import pieces_of
from onyx.flow.batch import Batch, Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.ids import AllocationVersion, JobId, PeerId
from onyx.ledger.returns import Trees
from onyx.settings import FRAME_OVERHEAD_BYTES
from onyx.transport.encoded import Encoded, encoded, encoded_partial, with_lineage
from onyx.transport.frames import encoder
from onyx.transport.frames.packets import Acks, Completions, Held
from onyx.transport.interface import Partial

_LINEAGE_BYTES = 3 * codec.COLUMN_VALUE_BYTES


def encoded_pieces(batch: Batch | Partial, frame_bytes_max: int) -> Iterator[Encoded]:
    """The batch as one or more encoded batches, in order, each at most one frame. States of windows
    are one piece: whoever folds them keeps within the bounds (`channels/combining`).

    Raises:
        SegmentError: a segment cannot be encoded, or one alone is larger than a frame.
    """
    if isinstance(batch, Partial):
        yield encoded_partial(batch)
        return
    pieces = format_of(batch.segments).choose(_pieces_of_dicts, _pieces_of_columns)
    yield from pieces(batch.segments, batch, frame_bytes_max - FRAME_OVERHEAD_BYTES)


def _pieces_of_dicts(segments: list[Segment], batch: Batch, limit: int) -> Iterator[Encoded]:
    payload = codec.encode(segments, min(SEGMENT_BYTES_MAX, limit - _LINEAGE_BYTES))
    if len(batch) <= ROWS_MAX and len(payload) + _LINEAGE_BYTES * len(batch) <= limit:
        yield with_lineage(Encoded(len(batch), payload, b"", b""), batch)
        return
    half = len(batch) // 2
    for first, last in ((0, half), (half, len(batch))):
        part = segments[first:last]
        yield from _pieces_of_dicts(part, _with_lineage(batch, part, first, last), limit)


def _pieces_of_columns(columns: Columns, batch: Batch, limit: int) -> Iterator[Encoded]:
    """Cut by rows, without copies. A piece is encoded once, when it is known to fit."""
    left = [(0, len(columns))]
    while left:
        first, last = left.pop()
        rows = last - first
        part = columns.slice(first, last)
        lineage_bytes = _LINEAGE_BYTES * rows
        if rows <= ROWS_MAX and columns_codec.encoded_bytes(part) + lineage_bytes <= limit:
            yield encoded(_with_lineage(batch, part, first, last))
        elif rows == 1:
            raise columns_codec.too_large(columns, first, limit - lineage_bytes)
        else:
            half = (first + last) // 2
            left += [(half, last), (first, half)]


def _with_lineage(batch: Batch, segments: Segments, first: int, last: int) -> Batch:
    """Some segments of a batch, with their roots, ids and laps."""
    roots = None if batch.roots is None else batch.roots[first:last]
    ids = None if batch.ids is None else batch.ids[first:last]
    laps = None if batch.laps is None else batch.laps[first:last]
    return Batch(segments, roots, ids, laps=laps)


def _column_slices(column: Numbers, frame_bytes_max: int) -> Iterator[slice]:
    """Slices of two columns of this length (acks) that fit in a frame with their identifiers."""
    overhead = FRAME_OVERHEAD_BYTES + 2 * CHARACTERS_MAX
    step = max(1, (frame_bytes_max - overhead) // _LINEAGE_BYTES)
    for start in range(0, len(column), step):
        yield slice(start, start + step)


def acks_packets(acks: Acks, frame_bytes_max: int) -> list[bytes]:
    """Acks as packets, each at most one frame."""
    return [
        encoder.acks_packet(replace(acks, roots=acks.roots[part], values=acks.values[part]))
        for part in _column_slices(acks.roots, frame_bytes_max)
    ]


def completions_packets(completions: Completions, frame_bytes_max: int) -> list[bytes]:
    """Completions as packets, each at most one frame."""
    return [
        encoder.completions_packet(replace(completions, roots=completions.roots[part]))
        for part in _column_slices(completions.roots, frame_bytes_max)
    ]


def held_packets(held: Held, frame_bytes_max: int) -> list[bytes]:
    """Reports of what is worked on as packets, each at most one frame."""
    return [
        encoder.held_packet(replace(held, roots=held.roots[part]))
        for part in _column_slices(held.roots, frame_bytes_max)
    ]


def returns_packets(
    job: JobId, version: AllocationVersion, target: PeerId, trees: Trees, to_acker: bool
) -> list[bytes]:
    """What functions give back as packets: one tree is smaller than the smallest frame."""
    return [
        encoder.returns_packet(job, version, target, piece, to_acker) for piece in pieces_of(trees)
    ]
