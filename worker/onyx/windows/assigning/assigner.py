"""Which extents coordinates belong to: the first of the three steps of a window.

An assigner is arithmetic on coordinates, one at a time or a whole batch as one array; it knows
neither groups nor states (folding, `types/`) nor what fires (`triggers/`). Session windows have
none: their extents depend on the segments before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from onyx.flow.batch import Indices
from onyx.keystate.coded import Array
from onyx.keystate.extents import Number

Axis = Sequence[Number] | Array
"""The coordinates of a batch."""


class Part(NamedTuple):
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

    def split(self, coordinates: Axis, ints: bool) -> list[Part]:
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

    def split(self, coordinates: Axis, ints: bool) -> list[Part]:
        """The whole batch."""
        return [Part((self.NUMBER,), None)]
