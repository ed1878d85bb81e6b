"""Which extents of a fixed or sliding window a place belongs to, and which places an extent has.

Extents are numbered as by Li et al. (Semantics and Evaluation Techniques for Window Aggregates in
Data Streams): extent i is the one that ends just before `min + slide * (i + 1)`, so that a place is
in the extents from the one of its own slide on. Arithmetic only; the number of an extent is its
name in stored state, which is why bounds are never stored.

Numbers below `min` are floored like all others, which the original did up to 0.9; its later
versions truncate, so that the first extent below `min` is twice as wide.

A batch is split with few operations on Python's numbers. Nearly all batches lie in one extent or
two, in order of arrival; then this costs a few nanoseconds a segment. Within a part the order of
arrival is kept, on which sums of floats depend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from onyx.windows.assigning.assigner import Part
from onyx.windows.firing import Number

PLACE_MAX = 2**62
"""Beyond it the arithmetic of 64 bits could overflow, and is left to Python's."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Extents of `width` places that begin every `slide` places; `slide == width` is fixed."""

    minimum: int
    width: int
    slide: int
    bounded: bool = True

    def numbers(self, place: Number) -> range:
        """Numbers of all extents that have this place."""
        distance = place - self.minimum
        return range(int(distance // self.slide), int((distance + self.width) // self.slide))

    def bounds(self, number: int) -> tuple[int, int]:
        """First and last place of an extent; nothing of it is before `minimum`."""
        last = self.minimum + self.slide * (number + 1) - 1
        first = last - self.width + 1
        return (max(first, self.minimum) if last >= self.minimum else first), last

    def split(self, places: Sequence[Number], ints: bool) -> list[Part]:
        """The parts of a batch, by its places; `ints` when all of them are ints."""
        if not places:
            return []
        if ints:
            try:
                return _split_ints(self, np.array(places, np.int64))
            except OverflowError:
                return _split_slowly(self, places)
        return _split_slowly(self, places)


def _split_ints(tiling: Tiling, places: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[Part]:
    least, most = int(places.min()), int(places.max())
    low, high = tiling.numbers(least), tiling.numbers(most)
    if low == high:
        return [Part(low, None)]
    if max(-least, most, abs(tiling.minimum), tiling.width) > PLACE_MAX:
        return _split_slowly(tiling, places.tolist())
    distances = places - tiling.minimum
    steps = distances // tiling.slide
    if tiling.width % tiling.slide:
        ends = (distances + tiling.width) // tiling.slide
        steps = steps + ends
    order = np.argsort(steps, kind="stable")
    sorted_ = steps[order]
    starts = [0, *(np.flatnonzero(sorted_[1:] != sorted_[:-1]) + 1).tolist(), len(order)]
    return [
        Part(tiling.numbers(int(places[order[begin]])), order[begin:end].tolist())
        for begin, end in pairwise(starts)
    ]


def _split_slowly(tiling: Tiling, places: Sequence[Number]) -> list[Part]:
    parts: dict[range, list[int]] = {}
    for index, place in enumerate(places):
        parts.setdefault(tiling.numbers(place), []).append(index)
    return [Part(numbers, indices) for numbers, indices in parts.items()]


def by_extent(parts: Sequence[Part]) -> list[Part]:
    """The same with one extent a part, so that each has all its segments in order of arrival."""
    if len(parts) < 2 or all(len(part.numbers) == 1 for part in parts):
        return list(parts)
    held: dict[int, list[list[int]]] = {}
    for part in parts:
        assert part.indices is not None
        for number in part.numbers:
            held.setdefault(number, []).append(part.indices)
    return [
        Part((number,), lists[0] if len(lists) == 1 else sorted(chain.from_iterable(lists)))
        for number, lists in held.items()
    ]
