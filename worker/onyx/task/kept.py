"""Under at-most-once nobody replays what a new allocation version throws away, so a peer that stays
on its task keeps it: what it had received, what it was working on, and what it had not sent yet.

What was sent and not received is lost, and so is what a peer has that leaves its task. Nothing is
done twice: a batch is kept as it was before the function or after it, never both, and what is
resent was refused before. Stopping inputs until everything has arrived was rejected: then a new
allocation would wait for the slowest task, and for a dead one for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onyx.flow.apply import Leaves
from onyx.flow.batch import Batch
from onyx.ids import TaskName
from onyx.task.channels.wiring import ChildTask
from onyx.task.phases.table import Phase

if TYPE_CHECKING:
    from onyx.task.task import Task

Put = Callable[["Task", ChildTask, Batch], None]

_READ = (Phase.AFTER_READ_BATCH, Phase.APPLY_FN)
_APPLIED = (Phase.AFTER_APPLY_FN, Phase.ROUTE, Phase.ASSIGN_WINDOWS, Phase.SEND)


@dataclass(slots=True)
class Kept:
    """Of one task, over one change of the allocation or several."""

    received: deque[Batch] = field(default_factory=deque)
    """Bounded by what an inbox holds."""
    applied: tuple[Batch, Leaves] | None = None
    unsent: deque[tuple[TaskName, Batch]] = field(default_factory=deque)
    """With the child task that each goes to."""

    def __bool__(self) -> bool:
        return bool(self.received or self.unsent) or self.applied is not None


def keep(task: Task) -> None:
    """The allocation has changed: take over what the task has. The inbox is closed."""
    kept, batch, leaves = task.kept, task.batch, task.leaves
    kept.unsent.extend(task.live.outbox.take_unsent())
    if batch is not None and leaves is not None and task.phase in (*_READ, *_APPLIED):
        kept.applied = (batch, leaves)
    elif batch is not None and task.phase in _READ:
        kept.received.appendleft(batch)
    items = [delivery.item for delivery in task.live.inbox.drain()]
    kept.received.extend(item for item in items if isinstance(item, Batch))


def take(task: Task, put: Put) -> bool:
    """Let the task go on with something that was kept; False when there is nothing."""
    kept = task.kept
    task.batch, task.leaves = None, None
    if kept.unsent:
        children = {child.task: child for child in task.live.wiring.children}
        for name, batch in kept.unsent:
            put(task, children[name], batch)
        kept.unsent.clear()
    elif kept.applied is not None:
        (task.batch, task.leaves), kept.applied = kept.applied, None
    elif kept.received:
        task.batch = kept.received.popleft()
    else:
        return False
    return True
