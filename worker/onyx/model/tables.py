"""Which tables a task of a job looks up, and what of other tasks."""

from __future__ import annotations

from typing import NamedTuple

from onyx.model.job import CatalogEntry, Job


def looked_up(entry: CatalogEntry) -> tuple[str, ...]:
    """The tables that a task names, each once."""
    joined = () if entry.join is None or entry.join.table is None else (entry.join.table,)
    return tuple(dict.fromkeys((*joined, *entry.tables)))


class Read(NamedTuple):
    """What a task looks up of another one."""

    state: str
    """Name of a window, or `task.state`."""
    task: CatalogEntry
    """Task that keeps it."""


def read_of(job: Job, entry: CatalogEntry) -> Read | None:
    """What a task looks up of another one; None: nothing."""
    state = None if entry.join is None else entry.join.state
    if state is None:
        return None
    windows = {window.id: window.task for window in job.windows}
    return Read(state, job.entry(windows.get(state) or state.rpartition(".")[0]))
