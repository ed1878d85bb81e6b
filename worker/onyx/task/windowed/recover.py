"""Taking over the state of a windowed task, before its peer is ready.

A task with windows is a source as well: it owns one partition a shard of its state, and what its
triggers emit begins new trees from it. Rank 0 has the partitions numbered by the log.
"""

from __future__ import annotations

from typing import Any

from onyx.flow.groups.keys import SHARDS, shard_of
from onyx.program.trigger_calls import TriggerCalls
from onyx.program.windows import Windowed
from onyx.replica.commands.register_partitions import RegisterPartitions
from onyx.state.local.spilled import holder
from onyx.state.recovery import Recovered
from onyx.task.channels.wiring import Wiring
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.carry_over import carry_over_windows, may_carry_over
from onyx.task.recovery.state import recovered_state, shards_of_rank
from onyx.task.window_state.emissions import Emissions
from onyx.task.window_state.windowing import Windowing
from onyx.task.windowed.by_spark import make_by_spark, spooling
from onyx.windows.groups import Shards
from onyx.windows.task_windows import FIRINGS_PAGE_MAX, TaskWindows


def recover_windows(runtime: Runtime, allocation: Allocation) -> bool:
    """Take over the shards of this peer; False while the job waits for it."""
    its, delivery = runtime.program.windowed, runtime.delivery
    if its is None or allocation.windowing is not None:
        return True
    shards = SHARDS if its.group_key is not None else 1
    first = None
    if delivery.durable:
        first = _first_partition(runtime, allocation.wiring, shards)
        if first is None:
            return False
    if not may_carry_over(runtime.assignment):
        return False
    allocation.windowing = recovered_state(
        runtime,
        allocation.wiring,
        shards_of_rank(allocation.wiring, shards),
        carry_over_windows(runtime),
        lambda recovered: _windowing(runtime, allocation.wiring, its, first, recovered),
    )
    return allocation.windowing is not None


def _first_partition(runtime: Runtime, wiring: Wiring, shards: int) -> int | None:
    """Number of the partition of shard 0; None until the log has it."""
    registered = runtime.services.replica().partitions(runtime.job_id)
    if runtime.task in registered:
        return registered[runtime.task].first
    if wiring.rank == 0 and not runtime.registration.proposed:
        runtime.registration.proposed = True
        runtime.assignment.propose(
            RegisterPartitions(job=runtime.job_id, task=runtime.task, count=shards)
        )
    return None


def _windowing(
    runtime: Runtime, wiring: Wiring, its: Windowed, first: int | None, recovered: Recovered
) -> Windowing:
    """With the whole state, which takes its time; so not on a thread that tasks share."""
    services, task = runtime.services, runtime.task
    state = services.settings.state
    timeout_s = runtime.program.entry.pending_timeout / 1000
    of_group = _only_shard if its.group_key is None else shard_of
    elsewhere = make_by_spark(runtime, wiring)
    page_max = min(FIRINGS_PAGE_MAX, state.firings_page_max)
    return Windowing(
        TaskWindows(its.compiled, of_group, holder(state), page_max, elsewhere),
        Shards(of_group),
        Emissions(task, first, services.clock, timeout_s, runtime.assignment.retry_delay),
        TriggerCalls(task, its.functions, runtime.program.event),
        recovered,
        runtime.program.job.guarantee == "exactly-once",
        services.background,
        services.clock,
        state if elsewhere is None else spooling(state),
    )


def _only_shard(_: Any) -> int:
    return 0
