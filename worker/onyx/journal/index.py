"""Which chunk of a journal has which positions."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from onyx.journal.names import Place


class Indexed(NamedTuple):
    """A chunk with segments."""

    place: Place
    first: int
    """Position of its first segment."""
    segments: int
    size_bytes: int
    wall_ms: int
    """When it was written."""

    @property
    def end(self) -> int:
        """Behind its last position."""
        return self.first + self.segments


class Index:
    """The chunks that are kept, in order. Not thread-safe."""

    def __init__(self) -> None:
        self._chunks: deque[Indexed] = deque()
        self._frontier = 0
        self.size_bytes = 0
        """Bytes of those that are not processed."""

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[Indexed]:
        return iter(self._chunks)

    def add(self, chunk: Indexed) -> None:
        """A chunk behind all others."""
        self._chunks.append(chunk)
        if chunk.end > self._frontier:
            self.size_bytes += chunk.size_bytes

    def at(self, position: int) -> Indexed | None:
        """The chunk that has a position; None: none has."""
        number = bisect_right(self._chunks, position, key=_first) - 1
        if number < 0 or position >= self._chunks[number].end:
            return None
        return self._chunks[number]

    def processed(self, frontier: int) -> None:
        """Everything before this position is."""
        self.size_bytes -= sum(
            each.size_bytes for each in self.before(frontier) if each.end > self._frontier
        )
        self._frontier = max(frontier, self._frontier)

    def before(self, position: int) -> list[Indexed]:
        """The chunks all of whose positions are below one."""
        found = []
        for chunk in self._chunks:
            if chunk.end > position:
                break
            found.append(chunk)
        return found

    def drop(self, count: int) -> None:
        """Forget the first chunks, which are processed."""
        for _ in range(count):
            self._chunks.popleft()


def _first(chunk: Indexed) -> int:
    return chunk.first
