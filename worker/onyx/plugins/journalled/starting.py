"""Where `startFrom` is in a partition of a journal that is there already."""

from __future__ import annotations

from collections.abc import Callable

from onyx.journal.view import JournalBounds
from onyx.plugins.starting import Start


def position_in(
    bounds: JournalBounds, start: Start, partition: str, now_ms: int, since: Callable[[int], int]
) -> int:
    """The position at which it is read first.

    Args:
        bounds: of what there is.
        since: the first position that was not written before a time.
    """
    since_ms = start.since_ms(now_ms)
    if since_ms is not None:
        return since(since_ms)
    match start.form:
        case "beginning":
            return bounds.first
        case "end":
            return bounds.end
        case "recordsAgo":
            return max(bounds.first, bounds.end - start.records)
        case "positions":
            return start.positions.get(partition, bounds.first)
        case _:
            return start.position(partition)
