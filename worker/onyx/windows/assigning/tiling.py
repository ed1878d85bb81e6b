"""Which extents of a fixed or sliding window a place belongs to, and which places an extent has.

Extents are numbered as by Li et al. (Semantics and Evaluation Techniques for Window Aggregates in
Data Streams): extent i is the one that ends just before `min + slide * (i + 1)`, so that a place is
in the extents from the one of its own slide on. Arithmetic only; the number of an extent is its
name in stored state, which is why bounds are never stored.

Numbers below `min` are floored like all others, which the original did up to 0.9; its later
versions truncate, so that the first extent below `min` is twice as wide.
"""

from __future__ import annotations

from dataclasses import dataclass

from onyx.windows.firing import Number


@dataclass(frozen=True, slots=True)
class Tiling:
    """Extents of `width` places that begin every `slide` places; `slide == width` is fixed."""

    minimum: int
    width: int
    slide: int

    def numbers(self, place: Number) -> range:
        """Numbers of all extents that have this place."""
        distance = place - self.minimum
        return range(int(distance // self.slide), int((distance + self.width) // self.slide))

    def bounds(self, number: int) -> tuple[int, int]:
        """First and last place of an extent; nothing of it is before `minimum`."""
        last = self.minimum + self.slide * (number + 1) - 1
        first = last - self.width + 1
        return (max(first, self.minimum) if last >= self.minimum else first), last
