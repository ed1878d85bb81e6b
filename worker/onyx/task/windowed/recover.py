"""Taking over the state of a windowed task, before its peer is ready.

A task with windows is a source as well: it owns one partition a shard of its state, and what its
triggers emit begins new trees from it. Rank 0 has the partitions numbered by the log.
"""

from __future__ import annotations

from typing import Any

from onyx.flow.grouping import SHARDS, shard_of
from onyx.program.trigger_calls import TriggerCalls
from onyx.replica.commands.register_partitions import RegisterPartitions
from onyx.state.local.spilled import holder
from onyx.state.recovery import Recovered
from onyx.task.channels.wiring import Wiring
from onyx.task.parts import Allocation, Program, Windowed
from onyx.task.recovery.carry_over import carry_over_windows, may_carry_over
from onyx.task.recovery.state import recovered_state, shards_of_rank
from onyx.task.windowed.by_spark import make_by_spark, spooling
from onyx.task.windowed.emissions import Emissions
from onyx.task.windowed.state import Windowing
from onyx.windows.groups import Shards
from onyx.windows.task_windows import FIRINGS_PAGE_MAX, TaskWindows


def recover_windows(program: Program, allocation: Allocation) -> bool:
    """Take over the shards of this peer; False while the job waits for it."""
    its, delivery = program.windowed, program.delivery
    if its is None or allocation.windowing is not None:
        return True
    shards = SHARDS if its.group_key is not None else 1
    first = None
    if delivery.durable:
        first = _first_partition(program, allocation.wiring, shards)
        if first is None:
            return False
    if not may_carry_over(program.assignment):
        return False
    allocation.windowing = recovered_state(
        program,
        allocation.wiring,
        shards_of_rank(allocation.wiring, shards),
        carry_over_windows(program),
        lambda recovered: _windowing(program, allocation.wiring, its, first, recovered),
    )
    return allocation.windowing is not None


def _first_partition(program: Program, wiring: Wiring, shards: int) -> int | None:
    """Number of the partition of shard 0; None until the log has it."""
    registered = program.services.replica().partitions(program.job_id)
    if program.task in registered:
        return registered[program.task].first
    if wiring.rank == 0 and not program.registration.proposed:
        program.registration.proposed = True
        program.assignment.propose(
            RegisterPartitions(job=program.job_id, task=program.task, count=shards)
        )
    return None


def _windowing(
    program: Program, wiring: Wiring, its: Windowed, first: int | None, recovered: Recovered
) -> Windowing:
    """With the whole state, which takes its time; so not on a thread that tasks share."""
    services, task = program.services, program.task
    state = services.settings.state
    timeout_s = program.entry.pending_timeout / 1000
    of_group = _only_shard if its.group_key is None else shard_of
    elsewhere = make_by_spark(program, wiring)
    page_max = min(FIRINGS_PAGE_MAX, state.firings_page_max)
    return Windowing(
        TaskWindows(its.compiled, of_group, holder(state), page_max, elsewhere),
        Shards(of_group),
        Emissions(task, first, services.clock, timeout_s, program.assignment.retry_delay),
        TriggerCalls(task, its.functions, program.event),
        recovered,
        program.job.guarantee == "exactly-once",
        services.background,
        services.clock,
        state if elsewhere is None else spooling(state),
    )


def _only_shard(_: Any) -> int:
    return 0
