"""The windows or the state by key of a task, built of what its peer has taken over."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from onyx.flow.groups.keys import shard_of
from onyx.keystate.groups import Shards
from onyx.model.requests import asked_for
from onyx.model.workflow import loop_of
from onyx.on_demand import OnDemand
from onyx.program.program import Program
from onyx.program.trigger_calls import calls_of
from onyx.settings import StateSettings
from onyx.state.local.spilled import holder
from onyx.state.local.spilled_keys import filters
from onyx.state.recovery import Recovered
from onyx.task.channels.wiring import Wiring
from onyx.task.parts.runtime import Runtime
from onyx.task.state.appends import Appends
from onyx.task.state.emissions import Emissions
from onyx.task.state.held_acks import HeldAcks
from onyx.task.state.keeper import StateKeeper
from onyx.task.state.runs import run_of
from onyx.task.state.task_state import TaskState
from onyx.task.stateful.held import held_by, only_shard
from onyx.windows.running import Make

PART_INTERVAL_S = 1.0
"""Longest time that rows for Spark wait for their part: a part is a file, and large ones are read
faster."""
PART_ROWS_MAX = 500_000

_MAKE_BY_SPARK: OnDemand[Callable[[Runtime, Wiring], Make]]
_MAKE_BY_SPARK = OnDemand("onyx.task.stateful.by_spark:make_by_spark")


def keeper_of(
    runtime: Runtime, wiring: Wiring, first: int | None, recovered: Recovered
) -> StateKeeper:
    """With the whole state, which takes its time; so not on a thread that tasks share."""
    services, task, program = runtime.services, runtime.task, runtime.program
    its = program.stateful
    assert its is not None, "asked of a task with state"
    shards = Shards(shard_of if its.is_split else only_shard)
    timeout_s = program.entry.pending_timeout / 1000
    elsewhere = _MAKE_BY_SPARK.load()(runtime, wiring) if _has_any_by_spark(program) else None
    state = services.settings.state
    states = holder(state)
    held = held_by(runtime, wiring, shards, sorted(recovered.shards), states, elsewhere)
    exactly_once = program.job.guarantee == "exactly-once"
    emissions = Emissions(task, first, services.clock, timeout_s, runtime.assignment.retry_delay)
    for shard, each in recovered.shards.items():
        runs = [run_of(run.segments, run.child) for run in each.emitted]
        emissions.restore(shard, each.settled, runs)
    return StateKeeper(
        TaskState(held, recovered, exactly_once, filters(state, states)),
        shards,
        emissions,
        calls_of(program),
        Appends(recovered.log, services.background, services.clock),
        services.clock,
        state if elsewhere is None else _spooling(state),
        _held_acks(program, emissions),
    )


def _held_acks(program: Program, emissions: Emissions) -> HeldAcks | None:
    """Where requests may come from, and no window is in between: what a window emits belongs to
    nobody's request."""
    job, task = program.job, program.task
    if program.windowed is not None or emissions.first_partition is None:
        return None
    if task not in asked_for(job):
        return None
    return HeldAcks(emissions, in_a_loop=bool(loop_of(job, task)))


def _has_any_by_spark(program: Program) -> bool:
    its = program.windowed
    return its is not None and any(each.window.engine != "peers" for each in its.compiled.windows)


def _spooling(settings: StateSettings) -> StateSettings:
    """The pace of chunks for a task whose rows go into parts, one a chunk."""
    return replace(
        settings,
        chunk_interval_s=max(settings.chunk_interval_s, PART_INTERVAL_S),
        chunk_segments_max=max(settings.chunk_segments_max, PART_ROWS_MAX),
    )
