"""Splitting a batch by extent, with few operations on Python's numbers.

Nearly all batches lie in one extent or two, in order of arrival; then this costs a few nanoseconds
a segment. Within a part the order of arrival is kept, on which sums of floats depend.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from onyx.windows.assigning.tiling import Tiling
from onyx.windows.firing import Number


class Part(NamedTuple):
    """Segments of a batch that are in the same extents."""

    numbers: Sequence[int]
    """The extents."""
    indices: list[int] | None
    """The segments; None for the whole batch."""


PLACE_MAX = 2**62
"""Beyond it the arithmetic of 64 bits could overflow, and is left to Python's."""


def split(tiling: Tiling, places: Sequence[Number], ints: bool) -> list[Part]:
    """The parts of a batch, by its places; `ints` when all are ints."""
    if not places:
        return []
    if ints:
        try:
            array = np.array(places, np.int64)
        except OverflowError:
            return _split_slowly(tiling, places)
        return _split_ints(tiling, array)
    return _split_slowly(tiling, places)


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
    if len(parts) < 2:
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
