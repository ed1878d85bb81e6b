"""What a task with windows runs besides, worked out once from its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onyx.base.on_demand import OnDemand
from onyx.flow.groups.getters import key_getter
from onyx.flow.predicates import Resolve
from onyx.model.job import Job
from onyx.model.kinds import EMIT_ROWS
from onyx.model.workflow import sources_above
from onyx.program.program import Definition, Needs
from onyx.windows.compile import compile_windows
from onyx.windows.compiled import CompiledWindows


class Windowed(Definition, frozen=True, kw_only=True):
    """What a task with windows runs besides."""

    compiled: CompiledWindows
    functions: Mapping[str, Callable[..., Any]]
    """The functions that triggers name."""

    words = "windows"
    made_by = OnDemand("onyx.operators.windowed.operator:windowed_operator")


def windowed(job: Job, task: str, resolve: Resolve) -> Windowed | None:
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
    group_key = key_getter(entry, resolve)
    by_spark = any(each.window.engine != "peers" for each in windows.windows)
    return Windowed(
        task=task,
        compiled=windows,
        group_key=group_key,
        is_split=group_key is not None,
        unique_key=entry.uniqueness_key if entry.deduplicate else None,
        late_to=tuple(sorted({each.late_to for each in mine.values() if each.late_to})),
        fed_by=frozenset(sources_above(job, task)),
        functions={name: resolve(name) for name in sorted(names)},
        # What a window emits belongs to nobody's request: it is of many segments.
        needs=Needs(absorbs=entry.type == "reduce", answers=False, engine=by_spark),
    )
