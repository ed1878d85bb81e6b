"""Taking over the state of a windowed task, before its peer is ready.

A task with windows is a source as well: it owns one partition a shard of its state, and what its
triggers emit begins new trees from it. Rank 0 has the partitions numbered by the log.
"""

from __future__ import annotations

from typing import Any

from onyx.flow.grouping import SHARDS, shard_of
from onyx.replica.commands.register_partitions import RegisterPartitions
from onyx.state.local.spilled import holder
from onyx.state.recovery import Recovered
from onyx.task.channels.wiring import Wiring
from onyx.task.parts import Allocation, Assignment, Background, Program, Registration, Windowed
from onyx.task.recovery.carry_over import carry_over_windows, may_carry_over
from onyx.task.recovery.state import recovered_state, shards_of_rank
from onyx.task.windowed.emissions import Emissions
from onyx.task.windowed.state import Windowing
from onyx.task.windowed.trigger_calls import TriggerCalls
from onyx.windows.groups import Shards
from onyx.windows.task_windows import RUN_MAX, TaskWindows


def recover_windows(
    assignment: Assignment,
    program: Program,
    allocation: Allocation,
    registration: Registration,
    background: Background,
) -> bool:
    """Take over the shards of this peer; False while the job waits for it."""
    its, delivery = program.windowed, program.delivery
    if its is None or allocation.windowing is not None:
        return True
    shards = SHARDS if its.group_key is not None else 1
    first = None
    if delivery.durable:
        first = _first_partition(assignment, allocation.wiring, registration, shards)
        if first is None:
            return False
    if not may_carry_over(assignment):
        return False
    allocation.windowing = recovered_state(
        assignment,
        program,
        allocation.wiring,
        background,
        shards_of_rank(allocation.wiring, shards),
        carry_over_windows(assignment, program),
        lambda recovered: _windowing(assignment, program, its, first, recovered),
    )
    return allocation.windowing is not None


def _first_partition(
    assignment: Assignment, wiring: Wiring, registration: Registration, shards: int
) -> int | None:
    """Number of the partition of shard 0; None until the log has it."""
    registered = assignment.services.replica().partitions.get(assignment.job_id)
    if registered is not None and assignment.task in registered:
        return registered[assignment.task].first
    if wiring.rank == 0 and not registration.proposed:
        registration.proposed = True
        assignment.propose(
            RegisterPartitions(job=assignment.job_id, task=assignment.task, count=shards)
        )
    return None


def _windowing(
    assignment: Assignment,
    program: Program,
    its: Windowed,
    first: int | None,
    recovered: Recovered,
) -> Windowing:
    """With the whole state, which takes its time; so not on a thread that tasks share."""
    services, task = assignment.services, assignment.task
    state = services.settings.state
    timeout_s = program.entry.pending_timeout / 1000
    of_group = _only_shard if its.group_key is None else shard_of
    return Windowing(
        TaskWindows(its.compiled, of_group, holder(state), min(RUN_MAX, state.firings_page_max)),
        Shards(of_group),
        Emissions(task, first, services.clock, timeout_s, assignment.back_off),
        TriggerCalls(task, its.functions, program.event),
        recovered,
        program.job.guarantee == "exactly-once",
        services.background,
        services.clock,
        state,
    )


def _only_shard(_: Any) -> int:
    return 0
