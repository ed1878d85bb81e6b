"""A worker that has this among its modules keeps no state log: to tell what the log costs.

Nobody asks its windows for changes, and what is appended is durable at once. All else is as it was:
segments are still acked, and emissions sent, when a chunk would have been written, and ids are
remembered. After a crash the state is gone.
"""

from __future__ import annotations

from onyx.keystate.records import Record
from onyx.state.chunks import Chunk
from onyx.state.log import StateLog
from onyx.windows.task_windows import TaskWindows


def no_changes(self: TaskWindows) -> dict[int, list[Record]]:
    return {}


def discard(self: StateLog, chunk: Chunk) -> None:
    """Nothing is encoded or written."""


TaskWindows.take_changes = no_changes  # type: ignore[method-assign]
StateLog.append = discard  # type: ignore[method-assign]
