"""Carrying out what windows fire, page by page.

What fires at one moment, with a watermark or at the end, may be more than memory holds. So one page
is carried out, what it emits goes to the log with what it changed, and only then comes the next, if
not too much waits to arrive. Until the last page, the task reads nothing and nothing else fires:
windows are between two moments, and a segment that came in between would be counted for some groups
and not for others. Rejected: reading between two pages, which needs the states as they were, or
rules for each trigger about what comes in the middle.
"""

from __future__ import annotations

from collections.abc import Callable

from onyx.keystate.pages import PENDING, Pages, weight
from onyx.program.operator import carry_out
from onyx.task.state.keeper import Moment, StateKeeper


def _nothing() -> None:
    """When nothing is to be done."""


def fire(
    keeper: StateKeeper, runs: Callable[[], Pages], through: Callable[[], None] = _nothing
) -> None:
    """Carry out the first page of what fires now; `next_page` does the others.

    Args:
        runs: what windows are asked.
        through: called when all of it has been carried out.
    """
    assert keeper.firing is None, "one moment after the other"
    with keeper.operator.failures():
        keeper.firing = Moment(runs(), through, keeper.clock.monotonic_s())
    _page(keeper)


def next_page(keeper: StateKeeper) -> bool:
    """Carry out the next page, if there is room for it; True when something was done."""
    if keeper.firing is None or not keeper.ready_to_fire:
        return False
    since_s = keeper.firing.since_s
    if not _page(keeper):
        return False
    if keeper.firing is None:
        keeper.changed(1)  # so that the log records the end of the moment
        now_s = keeper.clock.monotonic_s()
        keeper.timers_from_s = now_s + (now_s - since_s)
    return True


def _page(keeper: StateKeeper) -> bool:
    """False if it is being computed elsewhere, and nothing was done."""
    firing, count = keeper.firing, 0
    assert firing is not None, "something fires"
    with keeper.operator.failures():
        for run in firing.runs:
            if run is PENDING:
                return count > 0
            carry_out(keeper, run)
            count += weight(run)
            if count >= keeper.settings.firings_page_max or keeper.emissions.full:
                return True
        keeper.firing = None
        firing.through()
    return True
