"""What a reader has decoded and nobody has taken yet: lists of dicts and columns, in order.

A reader of columns decodes in blocks of its own size, and the engine asks for another one. So
blocks are cut without a copy, and neighbours of the same types are joined.
"""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from onyx.flow.batch import Segments, joined, part_of
from onyx.flow.columns import Columns
from onyx.flow.segment import Segment


class Chunks:
    """Segments in the order in which they were put in."""

    def __init__(self) -> None:
        self._chunks: deque[Segments] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, segments: Segments) -> None:
        """Add what follows."""
        if len(segments):
            self._chunks.append(segments)
            self._count += len(segments)

    def take(self, count_max: int) -> Segments:
        """The next segments of one kind, at most so many: dicts, or columns of the same types."""
        taken: list[Segments] = []
        room = count_max
        while room > 0 and self._chunks and _alike(taken, self._chunks[0]):
            piece = self._cut(room)
            taken.append(piece)
            room -= len(piece)
        self._count -= count_max - room
        return joined(taken) if taken else []

    def _cut(self, count_max: int) -> Segments:
        first = self._chunks.popleft()
        if len(first) <= count_max:
            return first
        self._chunks.appendleft(part_of(first, count_max, len(first)))
        return part_of(first, 0, count_max)


def unwrapped(segments: Segments) -> pa.RecordBatch | list[Segment]:
    """As `ColumnsReader.read_columns` gives them."""
    return segments.record_batch if isinstance(segments, Columns) else segments


def _alike(taken: list[Segments], chunk: Segments) -> bool:
    if not taken:
        return True
    if isinstance(chunk, Columns) and isinstance(taken[0], Columns):
        return bool(chunk.record_batch.schema.equals(taken[0].record_batch.schema))
    return type(chunk) is type(taken[0])
