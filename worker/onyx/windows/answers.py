"""Answers to a question about a window: the first extents in order, of one peer and of all.

Each peer gives its first extents, so the first of all are among them. A peer may have to stop
early because its states are large: then nothing behind the last one that it gave is known
completely, and the whole answer ends there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from onyx.windows.firing import Extent
from onyx.windows.selection import place_of


@dataclass(frozen=True, slots=True)
class Answer:
    """Extents in the order of their places (`selection`)."""

    extents: Sequence[Extent]
    more: bool
    """There are others, which come behind these."""


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


def _order(extent: Extent) -> tuple[Any, ...]:
    return place_of(extent).order
