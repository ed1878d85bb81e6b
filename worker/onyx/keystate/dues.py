"""Things that are due at a time or watermark, each at one: a heap in which entries may be stale."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

from onyx.keystate.extents import Number

Item = TypeVar("Item", bound=Hashable)


class Dues(Generic[Item]):
    """Items by the number at which they are due."""

    def __init__(self) -> None:
        self._heap: list[tuple[Number, int, Item]] = []
        self._count = 0
        self.at: dict[Item, Number] = {}
        """When each item is due."""

    def put(self, item: Item, due: Number) -> None:
        """Make an item due at a number, instead of when it was."""
        if self.at.get(item) == due:
            return
        self.at[item] = due
        self._count += 1
        heappush(self._heap, (due, self._count, item))

    def put_earliest(self, item: Item, due: Number) -> None:
        """Make an item due at a number, unless it is so before."""
        before = self.at.get(item)
        if before is None or due < before:
            self.at[item] = due
            self._count += 1
            heappush(self._heap, (due, self._count, item))

    def take(self, reached: Number) -> Iterator[Item]:
        """Items that are due up to `reached`, earliest first; they are due no more."""
        heap = self._heap
        while heap and heap[0][0] <= reached:
            due, _, item = heappop(heap)
            if self.at.get(item) == due:
                del self.at[item]
                yield item

    def earliest(self) -> Number | None:
        """When the next item is due."""
        while self._heap and self.at.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def not_before(self) -> Number | None:
        """Nothing is due before this; an item that was moved may be. From any thread."""
        first = self._heap[:1]
        return first[0][0] if first else None

    def remove(self, item: Item) -> None:
        """The item is not due any more."""
        self.at.pop(item, None)
