"""Pages: what comes of a state when no segment does, as much at a time as memory holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from onyx.flow.batch import EncodedRun, Segments


class Emission(NamedTuple):
    """Segments that were made of what a key group has."""

    shard: int
    segments: Segments
    child: str | None = None
    """The only child task that they are for; None: all."""
    encoded: EncodedRun | None = None
    """Their bytes for the state log, if who made them has had these."""
    firings: int = 0
    """How many groups have fired for it, if windows have."""


Page = list[Emission]
Pages = Iterator[Page]
"""What is made at one moment, page by page. What has made a page has changed the state; what makes
the next one has not, until it is asked for. Between two pages changes may be taken, and questions
answered; nothing else may be done before the last page."""
ROWS_PAGE_MAX = 10_000
"""Segments of a page, if nobody says less."""
PENDING: Final[Page] = []
"""This very page: the next one is being computed elsewhere, and is to be asked for later."""


def weight(page: Sequence[Emission]) -> int:
    """How many groups have fired, or segments were made."""
    return sum(max(each.firings, len(each.segments), 1) for each in page)
