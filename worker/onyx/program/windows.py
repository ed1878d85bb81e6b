"""What a task with windows runs besides, worked out once from its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onyx.flow.conditions import set_apart
from onyx.flow.groups.getters import KeyGetter, key_getter
from onyx.flow.predicates import Resolve
from onyx.keystate.coded import GroupKeys
from onyx.model.job import Job
from onyx.model.kinds import EMIT_ROWS
from onyx.model.workflow import children, sources_above
from onyx.windows.compile import compile_windows
from onyx.windows.compiled import CompiledWindows


class Windowed(msgspec.Struct, frozen=True):
    """What a task with windows runs besides."""

    compiled: CompiledWindows
    group_key: KeyGetter | None
    """None: the state is not split."""
    unique_key: str | None
    """The key by which a window recognizes segments that the source itself repeats."""
    late_to: tuple[str, ...]
    """Children that get late segments."""
    fed_by: frozenset[str]
    """Inputs and windowed tasks upstream: when they have ended, this one ends."""
    functions: Mapping[str, Callable[..., Any]]
    """The functions that triggers name."""
    group_keys: GroupKeys = msgspec.field(default_factory=GroupKeys)
    """The group keys of columns."""

    @property
    def is_split(self) -> bool:
        """Whether the state is split by group."""
        return self.group_key is not None


def sends_to(job: Job, task: str) -> tuple[str, ...]:
    """The children that get what a task makes: of a reduce task only what its triggers emit, and
    none that is there for late segments or dead letters."""
    apart = set_apart(job, task)
    return tuple(child for child in children(job.workflow)[task] if child not in apart)


def compiled(job: Job, task: str, resolve: Resolve) -> Windowed | None:
    """The windows of a task, ready to run; None when it has none.

    Raises:
        UserError: a function is not registered or not of the right kind.
    """
    windows = compile_windows(job, task, resolve)
    if windows is None:
        return None
    entry = job.entry(task)
    mine = {window.id: window for window in job.windows if window.task == task}
    triggers = [trigger for trigger in job.triggers if trigger.window_id in mine]
    names = {name for each in triggers for name in (each.sync, each.emit) if name is not None}
    names.discard(EMIT_ROWS)
    return Windowed(
        compiled=windows,
        group_key=key_getter(entry, resolve),
        unique_key=entry.uniqueness_key if entry.deduplicate else None,
        late_to=tuple(sorted({each.late_to for each in mine.values() if each.late_to})),
        fed_by=frozenset(sources_above(job, task)),
        functions={name: resolve(name) for name in sorted(names)},
    )
