"""Windows of peers and of jobs on Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from onyx.client.states.checks import require_log, require_states
from onyx.client.states.shards import by_group
from onyx.client.states.state import Files, Restored
from onyx.errors import UserError
from onyx.flow.groups.keys import shard_of
from onyx.flow.predicates import Resolve
from onyx.keystate.extents import Extent
from onyx.keystate.groups import only_shard
from onyx.keystate.records import Record, of_window
from onyx.keystate.selection import Selection
from onyx.model.job import Job, Window
from onyx.task.channels.wiring import has_one_owner
from onyx.windows.compile import compile_windows
from onyx.windows.compiled import CompiledWindows
from onyx.windows.task_windows import TaskWindows
from onyx.windows.units import is_time


class WindowState(msgspec.Struct, frozen=True):
    """A window. Implements `State`."""

    job: Job
    window: Window

    by_files = False

    @property
    def name(self) -> str:
        """Its id."""
        return self.window.id

    asked_as = name

    @property
    def task(self) -> str:
        """The task that has it."""
        return self.window.task

    @property
    def kind(self) -> str:
        """With its type."""
        return f"{self.window.type} window"

    @property
    def grouped(self) -> bool:
        """Whether its task is."""
        return not has_one_owner(self.job, self.task)

    @property
    def in_store(self) -> bool:
        """Whether Spark runs the job, and has committed the state."""
        return self.job.engine == "spark"

    @property
    def in_time(self) -> bool:
        """Whether it has extents of event time."""
        amount = self.window.range or self.window.timeout_gap
        return amount is not None and is_time(amount)

    @property
    def by_session_key(self) -> bool:
        """Whether it has sessions by a key of their own."""
        return self.window.session_key is not None

    def check(self, select: Selection, durable: bool) -> None:
        """Raises UserError: it has no groups, or its states are not here."""
        self.require_groups(select)
        require_states(self.job)
        require_log(self.job, durable)

    def require_groups(self, select: Selection) -> None:
        """Raises UserError when groups are asked for, and there are none."""
        if select.by_group and not self.grouped:
            raise UserError(
                f"task {self.task} of window {self.name} is not grouped: leave the key out"
            )

    def shards(self, key: Any) -> Sequence[int]:
        """The key group of a group, or all; the first of what is not split."""
        return by_group(key) if self.grouped else [0]

    def empty(self, resolve: Resolve, files: Files) -> Callable[[], Restored]:
        """The window alone, without triggers: only who aggregates by himself needs his module."""
        return partial(OneWindow, self.name, self.compiled(resolve), self.shard_of)

    @property
    def shard_of(self) -> Callable[[Any], int]:
        """The shard of a group."""
        return shard_of if self.grouped else only_shard

    def compiled(self, resolve: Resolve) -> CompiledWindows:
        """The window alone, without triggers."""
        alone = replace(self.job, windows=(self.window,), triggers=())
        compiled = compile_windows(alone, self.task, resolve)
        assert compiled is not None, "the task has a window"
        return compiled


class OneWindow:
    """One window of a task, restored to be asked. Not thread-safe. Implements `Restored`."""

    def __init__(
        self, name: str, compiled: CompiledWindows, shard_of: Callable[[Any], int]
    ) -> None:
        self._name = name
        self._windows = TaskWindows(compiled, shard_of)

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply its records to a shard."""
        self._windows.restore(shard, of_window(records, self._name))

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """Its extents that are asked for, the first in order."""
        return self._windows.query(self._name, asked, extents_max)
