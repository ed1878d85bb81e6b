"""The windows of a task, built of the state that its peer has taken over."""

from __future__ import annotations

from typing import Any

from onyx.flow.groups.keys import shard_of
from onyx.program.trigger_calls import TriggerCalls
from onyx.program.windows import Windowed
from onyx.state.local.spilled import holder
from onyx.state.recovery import Recovered
from onyx.task.channels.wiring import Wiring
from onyx.task.parts.runtime import Runtime
from onyx.task.window_state.appends import Appends
from onyx.task.window_state.emissions import Emissions
from onyx.task.window_state.runs import run_of
from onyx.task.window_state.state import TaskState
from onyx.task.window_state.windowing import Windowing
from onyx.task.windowed.by_spark import make_by_spark, spooling
from onyx.windows.groups import Shards
from onyx.windows.task_windows import TaskWindows


def windowing_of(
    runtime: Runtime, wiring: Wiring, its: Windowed, first: int | None, recovered: Recovered
) -> Windowing:
    """With the whole state, which takes its time; so not on a thread that tasks share."""
    services, task = runtime.services, runtime.task
    state = services.settings.state
    timeout_s = runtime.program.entry.pending_timeout / 1000
    of_group = _only_shard if its.group_key is None else shard_of
    elsewhere = make_by_spark(runtime, wiring)
    page_max = state.firings_page_max
    windows = TaskWindows(its.compiled, of_group, holder(state), page_max, elsewhere)
    exactly_once = runtime.program.job.guarantee == "exactly-once"
    emissions = Emissions(task, first, services.clock, timeout_s, runtime.assignment.retry_delay)
    for shard, each in recovered.shards.items():
        runs = [run_of(run.segments, run.child) for run in each.emitted]
        emissions.restore(shard, each.settled, runs)
    return Windowing(
        TaskState(windows, recovered, exactly_once),
        Shards(of_group),
        emissions,
        TriggerCalls(task, its.functions, runtime.program.event, its.compiled.columns),
        Appends(recovered.log, services.background, services.clock),
        services.clock,
        state if elsewhere is None else spooling(state),
    )


def _only_shard(_: Any) -> int:
    return 0
