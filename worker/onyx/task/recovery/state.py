"""Taking over the state of a task, before its peer is ready: its keeper and its operator are built
of what was recovered.

A task with state is a source as well: it owns one partition a shard of its state, and what it emits
begins new trees from it. Rank 0 has the partitions numbered by the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onyx.base.on_demand import OnDemand
from onyx.flow.groups.keys import SHARDS
from onyx.keystate.groups import Shards
from onyx.model.requests import asked_for
from onyx.model.workflow import loop_of
from onyx.operators.context import OperatorContext
from onyx.operators.table import operator_of
from onyx.program.phases import Phase
from onyx.program.program import Definition, Program
from onyx.settings import StateSettings
from onyx.state.local.spilled import holder
from onyx.state.local.spilled_keys import filters
from onyx.state.recovery import CarryOver, RecoveredState
from onyx.task.channels.wiring import Wiring
from onyx.task.parts import Allocation, Runtime, first_partition
from onyx.task.recovery.old_job import may_carry_over
from onyx.task.recovery.state_log import from_state_log, shards_of_rank
from onyx.task.state.chunks import ChunkWriter
from onyx.task.state.emissions import Emissions, run_of
from onyx.task.state.held_acks import HeldAcks
from onyx.task.state.keeper import StateKeeper
from onyx.task.state.task_state import TaskState
from onyx.task.user_code import run_beside

if TYPE_CHECKING:
    from onyx.windows.running import Make

PART_INTERVAL_S = 1.0
"""Longest time that rows for Spark wait for their part: a part is a file, and large ones are read
faster."""

PART_ROWS_MAX = 500_000

_CARRY_OVER: OnDemand[Callable[[Runtime], CarryOver]]
_CARRY_OVER = OnDemand("onyx.task.recovery.old_state:carry_over_state")
_MAPPED: OnDemand[Callable[[StateSettings], Any]] = OnDemand("onyx.task.state.mapped:mapped")

_MAKE_BY_SPARK: OnDemand[Callable[[Runtime, Wiring], Make]]
_MAKE_BY_SPARK = OnDemand("onyx.task.recovery.by_spark:make_by_spark")


def recover_state(runtime: Runtime, allocation: Allocation) -> bool:
    """Take over the shards of this peer, whatever operator has them; False while the job waits for
    it."""
    its, delivery = runtime.program.operator, runtime.delivery
    if its is None or allocation.keeper is not None:
        return True
    shards = SHARDS if its.is_split else 1
    first = None
    if delivery.durable:
        proposes = allocation.wiring.rank == 0
        first = first_partition(runtime.assignment, runtime.registration, shards, proposes)
        if first is None:
            return False
    if not may_carry_over(runtime.assignment):
        return False
    upgrades = runtime.services.replica().upgrades(runtime.job_id) is not None
    allocation.keeper = from_state_log(
        runtime,
        allocation.wiring,
        shards_of_rank(allocation.wiring, shards),
        _CARRY_OVER.load()(runtime) if upgrades else None,
        partial(_keeper, runtime, allocation.wiring, first),
    )
    return allocation.keeper is not None


def _keeper(
    runtime: Runtime, wiring: Wiring, first: int | None, recovered: RecoveredState
) -> StateKeeper:
    """In the background. Some operators begin there with code of the user's."""
    make = partial(keeper_of, runtime, wiring, first, recovered)
    its = runtime.program.operator
    if its is None or not its.needs.user_code_at_start:
        return make()
    return run_beside(runtime.assignment, Phase.RECOVER.value, make)


def keeper_of(
    runtime: Runtime, wiring: Wiring, first: int | None, recovered: RecoveredState
) -> StateKeeper:
    """The keeper with the whole state, which takes its time: not on a thread that tasks share."""
    services, task, program = runtime.services, runtime.task, runtime.program
    its = program.operator
    assert its is not None, "asked of a task with state"
    settings, shards = services.settings.state, its.shards()
    context = _context(runtime, wiring, its, shards, sorted(recovered.shards))
    operator = operator_of(its, context)
    timeout_s = program.entry.pending_timeout / 1000
    emissions = Emissions(task, first, services.clock, timeout_s, runtime.assignment.retry_delay)
    for shard, each in recovered.shards.items():
        runs = [run_of(run.segments, run.child) for run in each.emitted]
        emissions.restore(shard, each.settled, runs)
    exactly_once = program.job.guarantee == "exactly-once"
    unique = filters(settings, context.holder)
    keeper = StateKeeper(
        TaskState(operator, recovered, exactly_once, unique),
        shards,
        emissions,
        ChunkWriter(recovered.log, services.background, services.clock),
        services.clock,
        _spooling(settings) if its.needs.engine else settings,
        _held_acks(program, its, emissions),
        context.holder,
    )
    operator.begin(program, keeper)
    return keeper


def _context(
    runtime: Runtime, wiring: Wiring, its: Definition, shards: Shards, own: Sequence[int]
) -> OperatorContext:
    settings = runtime.services.settings.state
    rows_max = settings.memory_extents_max
    return OperatorContext(
        program=runtime.program,
        shards=shards,
        own=own,
        holder=holder(settings),
        page_max=settings.firings_page_max,
        keep_rows=(lambda: _MAPPED.load()(settings)) if rows_max else None,
        memory_rows_max=rows_max,
        make_elsewhere=_MAKE_BY_SPARK.load()(runtime, wiring) if its.needs.engine else None,
        number=wiring.rank,
        operators=wiring.task_peers,
        ended=partial(_ended, runtime),
        durable=runtime.delivery.durable,
    )


def _ended(runtime: Runtime) -> Collection[str]:
    # Where nothing is accounted for, a source has ended when it has read all. What it has sent may
    # still be on its way.
    if not runtime.delivery.durable:
        return ()
    return runtime.services.replica().run(runtime.job_id).exhausted_inputs


def _held_acks(program: Program, its: Definition, emissions: Emissions) -> HeldAcks | None:
    """Where requests may come from, and what the operator emits belongs to them."""
    job, task = program.job, program.task
    if not its.needs.answers or emissions.first_partition is None or task not in asked_for(job):
        return None
    return HeldAcks(emissions, in_a_loop=bool(loop_of(job, task)))


def _spooling(settings: StateSettings) -> StateSettings:
    """The pace of chunks for a task whose rows go into parts, one a chunk."""
    return replace(
        settings,
        chunk_interval_s=max(settings.chunk_interval_s, PART_INTERVAL_S),
        chunk_segments_max=max(settings.chunk_segments_max, PART_ROWS_MAX),
    )
