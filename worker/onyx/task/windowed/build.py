"""The windows or the state by key of a task, built of what its peer has taken over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onyx.flow.groups.keys import shard_of
from onyx.joins.streams.part import Keep
from onyx.program.keyed.states import KeyedStates
from onyx.program.program import Program
from onyx.program.streams.state import JoinedStreams
from onyx.program.trigger_calls import TriggerCalls
from onyx.state.local.mapped import mapped
from onyx.state.local.spilled import holder
from onyx.state.local.spilled_keys import filters
from onyx.state.recovery import Recovered
from onyx.task.channels.wiring import Wiring
from onyx.task.parts.runtime import Runtime
from onyx.task.window_state.appends import Appends
from onyx.task.window_state.emissions import Emissions
from onyx.task.window_state.runs import run_of
from onyx.task.window_state.state import TaskState
from onyx.task.window_state.windowing import Windowing
from onyx.task.windowed.by_spark import make_by_spark, spooling
from onyx.task.windowed.processor import processor_of
from onyx.windows.buckets import Holder
from onyx.windows.groups import Shards
from onyx.windows.running import Make
from onyx.windows.stateful import Stateful
from onyx.windows.task_windows import TaskWindows


def windowing_of(
    runtime: Runtime, wiring: Wiring, first: int | None, recovered: Recovered
) -> Windowing:
    """With the whole state, which takes its time; so not on a thread that tasks share."""
    services, task, program = runtime.services, runtime.task, runtime.program
    its = program.stateful
    assert its is not None, "asked of a task with state"
    shards = Shards(shard_of if its.is_split else _only_shard)
    timeout_s = program.entry.pending_timeout / 1000
    elsewhere = make_by_spark(runtime, wiring)
    state = services.settings.state
    states = holder(state)
    held = _held(runtime, wiring, shards, sorted(recovered.shards), states, elsewhere)
    exactly_once = program.job.guarantee == "exactly-once"
    emissions = Emissions(task, first, services.clock, timeout_s, runtime.assignment.retry_delay)
    for shard, each in recovered.shards.items():
        runs = [run_of(run.segments, run.child) for run in each.emitted]
        emissions.restore(shard, each.settled, runs)
    return Windowing(
        TaskState(held, recovered, exactly_once, filters(state, states)),
        shards,
        emissions,
        _calls(program),
        Appends(recovered.log, services.background, services.clock),
        services.clock,
        state if elsewhere is None else spooling(state),
    )


def _held(
    runtime: Runtime,
    wiring: Wiring,
    shards: Shards,
    own: Sequence[int],
    states: Holder,
    elsewhere: Make | None,
) -> Stateful:
    """What the task keeps, with nothing in it yet."""
    program, clock = runtime.program, runtime.services.clock
    page_max = runtime.services.settings.state.firings_page_max
    if program.keyed is not None:
        params = program.event["params"]
        return KeyedStates(runtime.task, program.keyed, params, shards, states, clock)
    if program.processing is not None:
        return processor_of(runtime, program.processing, wiring, own, states)
    if program.streams is not None:
        return JoinedStreams(program.streams, shards, page_max, *_kept(runtime))
    its = program.windowed
    assert its is not None, "windows, state by key, a processor or a join"
    of_group = _only_shard if its.group_key is None else shard_of
    return TaskWindows(its.compiled, of_group, states, page_max, elsewhere)


def _kept(runtime: Runtime) -> tuple[Keep | None, int]:
    """What moves rows of a join to the local disk, and how many stay in memory."""
    state = runtime.services.settings.state
    rows_max = state.memory_extents_max
    return (mapped(state), rows_max) if rows_max else (None, 0)


def _calls(program: Program) -> TriggerCalls:
    its, event = program.windowed, program.event
    if its is None:
        return TriggerCalls(program.task, {}, event, columns=False, what=_what(program))
    return TriggerCalls(program.task, its.functions, event, its.compiled.columns)


def _what(program: Program) -> str:
    if program.processing is not None:
        return "the processor"
    return "state" if program.streams is None else "join"


def _only_shard(_: Any) -> int:
    return 0
