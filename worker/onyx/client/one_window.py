"""One window of a job, restored from its records to be asked. Nothing fires."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from onyx.flow.predicates import Resolve
from onyx.model.job import Job, Window
from onyx.spark.answers.window import AskedWindow
from onyx.spark.windows.spool import Spool
from onyx.windows.compile import compile_windows
from onyx.windows.compiled import CompiledWindows
from onyx.windows.firing import Extent
from onyx.windows.records import Record
from onyx.windows.selection import Selection
from onyx.windows.task_windows import TaskWindows


class OneWindow:
    """Not thread-safe."""

    def __init__(
        self, name: str, compiled: CompiledWindows, shard_of: Callable[[Any], int]
    ) -> None:
        self._name = name
        self._windows = TaskWindows(compiled, shard_of)

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records of the window to a shard."""
        self._windows.restore(shard, records)

    def query(self, asked: Selection, extents_max: int) -> list[Extent]:
        """Its extents that are asked for, the first in order."""
        return self._windows.query(self._name, asked, extents_max)


def one_window(
    job: Job, window: Window, resolve: Resolve, shard_of: Callable[[Any], int]
) -> Callable[[], OneWindow]:
    """What makes the window, with nothing in it.

    Raises:
        UserError: an aggregation of the user's is not there.
    """
    return partial(OneWindow, window.id, _compiled(job, window, resolve), shard_of)


def one_by_spark(
    job: Job, window: Window, resolve: Resolve, shard_of: Callable[[Any], int], folder: Spool
) -> AskedWindow:
    """The window, if peers have Spark aggregate it, with nothing in it. Raises as `one_window`."""
    (compiled,) = _compiled(job, window, resolve).windows
    return AskedWindow(compiled, folder, shard_of)


def _compiled(job: Job, window: Window, resolve: Resolve) -> CompiledWindows:
    alone = replace(job, windows=(window,), triggers=())
    compiled = compile_windows(alone, window.task, resolve)
    assert compiled is not None, "the task has a window"
    return compiled
