"""Which extents coordinates belong to: the first of the three steps of a window.

An assigner is arithmetic on coordinates, one at a time or a whole batch as one array; it knows
neither groups nor states (folding, `types/`) nor what fires (`triggers/`). Session windows have
none: their extents depend on the segments before.

Extents of fixed and sliding windows (`Tiling`) are numbered as by Li et al. (Semantics and
Evaluation Techniques for Window Aggregates in Data Streams): extent i is the one that ends just
before `min + slide * (i + 1)`, so that a coordinate is in the extents from the one of its own slide
on. The number of an extent is its name in stored state, which is why bounds are never stored.
Numbers below `min` are floored like all others, which the original did up to 0.9; its later
versions truncate, so that the first extent below `min` is twice as wide.

An extent begins and ends with whole numbers, so a fraction is in those of its floor. That is exact,
where adding a width to a float is not: just below the end of an extent it would give the next too.

A batch is split with few operations on Python's numbers. Nearly all batches lie in one extent or
two, in order of arrival; then this costs a few nanoseconds a segment. Within a part the order of
arrival is kept, on which sums of floats depend.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import pairwise
from math import floor
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from onyx.flow.batch import Indices
from onyx.keystate.coded import Array
from onyx.keystate.extents import Number

Axis = Sequence[Number] | Array
"""The coordinates of a batch."""


COORDINATE_MAX = 2**62
"""Beyond it the arithmetic of 64 bits could overflow, and is left to Python's."""
TWO_BYTES = 2**16


class BatchPart(NamedTuple):
    """Segments of a batch that are in the same extents."""

    numbers: Sequence[int]
    """The extents."""
    indices: Indices | None
    """The segments, in order of arrival; None for the whole batch."""


class Assigner(Protocol):
    """Extents that are known by number before segments come."""

    @property
    def bounded(self) -> bool:
        """Whether extents end, so that a watermark can pass them."""
        ...

    def numbers(self, coordinate: Number) -> Sequence[int]:
        """Numbers of all extents that have this coordinate."""
        ...

    def bounds(self, number: int) -> tuple[Number, Number]:
        """First and last coordinate of an extent."""
        ...

    def split(self, coordinates: Axis, ints: bool) -> list[BatchPart]:
        """The parts of a batch, by its coordinates; `ints` when all of them are ints."""
        ...


class OneExtent:
    """The assigner of a global window: everything is in one extent, which has no end."""

    bounded = False
    NUMBER = 1

    def numbers(self, coordinate: Number) -> Sequence[int]:
        """The only one."""
        return (self.NUMBER,)

    def bounds(self, number: int) -> tuple[Number, Number]:
        """Minus infinity and infinity."""
        return float("-inf"), float("inf")

    def split(self, coordinates: Axis, ints: bool) -> list[BatchPart]:
        """The whole batch."""
        return [BatchPart((self.NUMBER,), None)]


class Tiling(msgspec.Struct, frozen=True):
    """Extents of `width` coordinates that begin every `slide` coordinates; `slide == width` is
    fixed."""

    minimum: int
    width: int
    slide: int
    bounded: bool = True

    def numbers(self, coordinate: Number) -> range:
        """Numbers of all extents that have this coordinate."""
        distance = floor(coordinate) - self.minimum
        return range(distance // self.slide, (distance + self.width) // self.slide)

    def bounds(self, number: int) -> tuple[int, int]:
        """First and last coordinate of an extent; nothing of it is before `minimum`."""
        last = self.minimum + self.slide * (number + 1) - 1
        first = last - self.width + 1
        return (max(first, self.minimum) if last >= self.minimum else first), last

    def split(self, coordinates: Axis, ints: bool) -> list[BatchPart]:
        """The parts of a batch, by its coordinates; `ints` when all of them are ints."""
        if not len(coordinates):
            return []
        if isinstance(coordinates, np.ndarray):
            return _split_array(self, coordinates)
        if ints:
            with contextlib.suppress(OverflowError):
                return _split_array(self, np.array(coordinates, np.int64))
        return _split_slowly(self, coordinates)


def _split_array(tiling: Tiling, coordinates: Array) -> list[BatchPart]:
    least, most = coordinates.min().item(), coordinates.max().item()
    low, high = tiling.numbers(least), tiling.numbers(most)
    if (low.start, low.stop) == (high.start, high.stop):  # empty ranges are all equal
        return [BatchPart(low, None)]
    if max(-least, most, abs(tiling.minimum), tiling.width) > COORDINATE_MAX:
        return _split_slowly(tiling, coordinates.tolist())
    ints = coordinates.dtype == np.int64
    distances = (coordinates if ints else np.floor(coordinates).astype(np.int64)) - tiling.minimum
    steps = distances // tiling.slide
    if tiling.width % tiling.slide:
        steps = steps + (distances + tiling.width) // tiling.slide
    steps = steps - steps.min()
    few = steps.max() < TWO_BYTES  # two bytes are sorted without comparing
    order = np.argsort(steps.astype(np.uint16) if few else steps, kind="stable")
    sorted_ = steps[order]
    starts = [0, *(np.flatnonzero(sorted_[1:] != sorted_[:-1]) + 1).tolist(), len(order)]
    return [
        BatchPart(tiling.numbers(coordinates[order[begin]].item()), order[begin:end])
        for begin, end in pairwise(starts)
    ]


def _split_slowly(tiling: Tiling, coordinates: Sequence[Number]) -> list[BatchPart]:
    parts: dict[range, list[int]] = {}
    for index, coordinate in enumerate(coordinates):
        parts.setdefault(tiling.numbers(coordinate), []).append(index)
    ordered = sorted(parts.items(), key=lambda part: (part[0].start, part[0].stop))
    return [BatchPart(numbers, np.array(indices, np.intp)) for numbers, indices in ordered]


def by_extent(parts: Sequence[BatchPart]) -> list[BatchPart]:
    """The parts with one extent a part, so that each has all its segments in order of arrival."""
    if len(parts) < 2 or all(len(part.numbers) == 1 for part in parts):
        return list(parts)
    held: dict[int, list[Indices]] = {}
    for part in parts:
        assert part.indices is not None
        for number in part.numbers:
            held.setdefault(number, []).append(part.indices)
    return [
        BatchPart((number,), arrays[0] if len(arrays) == 1 else np.sort(np.concatenate(arrays)))
        for number, arrays in held.items()
    ]
