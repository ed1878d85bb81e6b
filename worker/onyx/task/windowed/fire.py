"""Carrying out what windows fire; what goes wrong in windows, told as a failure of their phase.

What fires at one moment, with a watermark or at the end, may be more than memory holds. So it is
carried out page by page: one is fired, what it emits goes to the log with what it changed, and only
then comes the next, if not too much waits to arrive. Until it is through, the task reads nothing
and nothing else fires: windows are between two moments, and what came in between would be counted
for some groups and not for others. Rejected: going on with reading between two pages, which needs
the states as they were, or rules for each trigger about what comes in the middle.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from onyx.errors import contained, describe
from onyx.task.failures.failure import Failure, place
from onyx.task.phases.table import Phase
from onyx.task.task import Task
from onyx.task.windowed.state import Moment, Windowing
from onyx.task.windowed.trigger_calls import call_emit, call_sync
from onyx.windows.firing import Firing, Runs


def _nothing() -> None:
    """When nothing is to be done."""


def fire(
    task: Task,
    windowing: Windowing,
    runs: Callable[[], Runs],
    through: Callable[[], None] = _nothing,
) -> None:
    """Carry out the first page of what fires now; `next_page` does the others.

    Args:
        runs: what windows are asked.
        through: called when all of it has been carried out.
    """
    assert windowing.firing is None, "one moment after the other"
    with told(task):
        windowing.firing = Moment(runs(), through, task.services.clock.monotonic_s())
    _page(task, windowing)


def next_page(task: Task, windowing: Windowing) -> bool:
    """Go on with what is not through, if there is room for it; True when something was done."""
    if windowing.firing is None or not windowing.ready_to_fire:
        return False
    since_s = windowing.firing.since_s
    _page(task, windowing)
    if windowing.firing is None:
        windowing.changed(1)  # the log is to know that it is through
        now_s = task.services.clock.monotonic_s()
        windowing.timers_from_s = now_s + (now_s - since_s)
    return True


def _page(task: Task, windowing: Windowing) -> None:
    firing, many = windowing.firing, 0
    assert firing is not None, "something fires"
    with told(task):
        for run in firing.runs:
            carry_out(task, windowing, run)
            many += len(run)
            if many >= task.services.settings.state.firings_page_max or windowing.emissions.full:
                return
        windowing.firing = None
        firing.through()


def carry_out(task: Task, windowing: Windowing, firings: Iterable[Firing]) -> None:
    """Call the users' functions: `sync` at once; and what `emit` gives is sent when durable."""
    its, event = task.static.windowed, task.static.event
    assert its is not None, "only windows fire"
    with told(task):
        for firing in firings:
            if firing.shard in windowing.closed:
                continue  # a timer or a watermark that came late: nobody listens any more
            call_sync(its.functions, event, firing)
            windowing.emit(firing.shard, call_emit(its.functions, event, firing))
            windowing.changed(1)


@contextlib.contextmanager
def told(task: Task) -> Iterator[None]:
    """What is raised here is a failure of the task's windows."""
    try:
        yield
    except Failure:
        raise
    except BaseException as raised:
        error = contained(raised)
        detail = f"windows of {task.name}: {describe(error)}{place(error)}"
        raise Failure(Phase.ASSIGN_WINDOWS.value, error, detail) from error
