"""Taking over the state of a windowed task, before its peer is ready.

A task with windows is a source as well: it owns one partition a shard of its state, and what its
triggers emit begins new trees from it. Rank 0 has the partitions numbered by the log.
"""

from __future__ import annotations

from functools import partial

from onyx.flow.groups.keys import SHARDS
from onyx.program.phases import Phase
from onyx.state.recovery import Recovered
from onyx.task.channels.wiring import Wiring
from onyx.task.joining import first_partition
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.recovery.carry_over import carry_over_windows
from onyx.task.recovery.old_state import may_carry_over
from onyx.task.recovery.state import recovered_state, shards_of_rank
from onyx.task.state.keeper import StateKeeper
from onyx.task.stateful.build import keeper_of
from onyx.task.user_code import run_beside


def recover_windows(runtime: Runtime, allocation: Allocation) -> bool:
    """Take over the shards of this peer; False while the job waits for it."""
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
    allocation.keeper = recovered_state(
        runtime,
        allocation.wiring,
        shards_of_rank(allocation.wiring, shards),
        carry_over_windows(runtime),
        partial(_keeper, runtime, allocation.wiring, first),
    )
    return allocation.keeper is not None


def _keeper(
    runtime: Runtime, wiring: Wiring, first: int | None, recovered: Recovered
) -> StateKeeper:
    """In the background. Some operators begin there with code of the user's."""
    make = partial(keeper_of, runtime, wiring, first, recovered)
    its = runtime.program.operator
    if its is None or not its.needs.user_code_at_start:
        return make()
    return run_beside(runtime.assignment, Phase.RECOVER.value, make)
