"""Carrying out what windows fire; what goes wrong in windows, told as a failure of their phase."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from onyx.task.failures import Failure, describe, place
from onyx.task.firings import call_emit, call_sync
from onyx.task.phases import Phase
from onyx.task.state import Task
from onyx.task.windowing import Windowing
from onyx.windows.firing import Firing


def carry_out(task: Task, windowing: Windowing, fire: Callable[[], Iterable[Firing]]) -> None:
    """Call the users' functions for all that `fire` gives: `sync` at once; and what `emit` gives is
    sent when durable."""
    its, event = task.static.windowed, task.static.event
    assert its is not None, "only windows fire"
    with told(task):
        for firing in fire():
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
    except Exception as error:
        detail = f"windows of {task.name}: {describe(error)}{place(error)}"
        raise Failure(Phase.ASSIGN_WINDOWS.value, error, detail) from error
