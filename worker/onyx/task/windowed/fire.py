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

from onyx.program.firing import carry_out
from onyx.task.window_state.windowing import Moment, Windowing
from onyx.windows.firing import PENDING, Pages, many


def _nothing() -> None:
    """When nothing is to be done."""


def fire(
    windowing: Windowing, runs: Callable[[], Pages], through: Callable[[], None] = _nothing
) -> None:
    """Carry out the first page of what fires now; `next_page` does the others.

    Args:
        runs: what windows are asked.
        through: called when all of it has been carried out.
    """
    assert windowing.firing is None, "one moment after the other"
    with windowing.calls.failures():
        windowing.firing = Moment(runs(), through, windowing.clock.monotonic_s())
    _page(windowing)


def next_page(windowing: Windowing) -> bool:
    """Carry out the next page, if there is room for it; True when something was done."""
    if windowing.firing is None or not windowing.ready_to_fire:
        return False
    since_s = windowing.firing.since_s
    if not _page(windowing):
        return False
    if windowing.firing is None:
        windowing.changed(1)  # so that the log records the end of the moment
        now_s = windowing.clock.monotonic_s()
        windowing.timers_from_s = now_s + (now_s - since_s)
    return True


def _page(windowing: Windowing) -> bool:
    """False if it is being computed elsewhere, and nothing was done."""
    firing, count = windowing.firing, 0
    assert firing is not None, "something fires"
    with windowing.calls.failures():
        for run in firing.runs:
            if run is PENDING:
                return count > 0
            carry_out(windowing, run)
            count += many(run)
            if count >= windowing.settings.firings_page_max or windowing.emissions.full:
                return True
        windowing.firing = None
        firing.through()
    return True
