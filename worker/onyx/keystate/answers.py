"""Answers to a question about a window: the first extents in order, of one peer and of all.

Each peer gives its first extents, so the first of all are among them. A peer may have to stop
early because its states are large: then nothing behind the last one that it gave is known
completely, and the whole answer ends there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from onyx.keystate.extents import Extent
from onyx.keystate.selection import place_of

Order = tuple[Any, ...]
"""Where a place is (`Place.order`)."""
What = TypeVar("What")


class Answer(msgspec.Struct, frozen=True):
    """Extents in the order of their places (`selection`)."""

    extents: Sequence[Extent]
    more: bool
    """There are others, which come behind these."""

    @classmethod
    def of(cls, found: Sequence[Extent], extents_max: int) -> Answer:
        """The first of what was found for one more."""
        return cls(found[:extents_max], are_more(found, extents_max))


def are_more(found: Sequence[Extent], given: int) -> bool:
    """Whether the first so many are not all there are."""
    return given < len(found) or bool(found and found[-1].item is not None)


def merge(answers: Iterable[Answer], extents_max: int) -> Answer:
    """The first extents of all peers."""
    answers = list(answers)
    ends = [_order(each.extents[-1]) for each in answers if each.more and each.extents]
    extents = sorted((extent for each in answers for extent in each.extents), key=_order)
    if ends:
        end = min(ends)
        extents = [extent for extent in extents if _order(extent) <= end]
    more = any(each.more for each in answers) or len(extents) > extents_max
    return Answer(extents[:extents_max], more)


class FirstPlaces(Generic[What]):
    """Gathers what lies at places, and forgets what is not at one of the first."""

    def __init__(self, places_max: int | None) -> None:
        """`places_max`: so many are wanted; None: all."""
        self._max = places_max
        self._found: dict[Order, list[What]] = {}
        self._end: Order | None = None
        """Nothing behind it is among the first."""

    def add(self, order: Order, what: What) -> None:
        """One more, at a place."""
        if self._end is not None and order > self._end:
            return
        self._found.setdefault(order, []).append(what)
        if self._max is not None and len(self._found) > 2 * self._max:
            self._cut(self._max)

    def in_order(self) -> list[list[What]]:
        """What lies at each of the first places, in the order in which it came."""
        if self._max is not None:
            self._cut(self._max)
        return [self._found[order] for order in sorted(self._found)]

    def _cut(self, places_max: int) -> None:
        for order in sorted(self._found)[places_max:]:
            del self._found[order]
        if len(self._found) == places_max:
            self._end = max(self._found, default=None)


def _order(extent: Extent) -> Order:
    return place_of(extent).order
