"""The windows of a task made ready to run: functions found, units in numbers, all checked once."""

from __future__ import annotations

from dataclasses import dataclass

from onyx.flow.predicates import Resolve
from onyx.model.job import Job, Window


@dataclass(frozen=True, slots=True)
class CompiledWindows:
    """What `TaskWindows` runs."""

    task: str
    windows: tuple[Window, ...]
    grouped: bool
    watermarks_assigned: bool
    """Whether an input of the job assigns watermarks; else segments are the watermark."""


def compile_windows(job: Job, task: str, resolve: Resolve) -> CompiledWindows | None:
    """The windows and triggers of a task; None when it has none.

    Raises:
        UserError: a function is missing or of the wrong kind, or an aggregation cannot do what the
            window asks of it; the window, trigger and key are named.
    """
    windows = tuple(window for window in job.windows if window.task == task)
    if not windows:
        return None
    raise NotImplementedError
