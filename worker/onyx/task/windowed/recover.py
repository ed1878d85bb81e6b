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
from onyx.task.user_code import run_beside
from onyx.task.window_state.windowing import Windowing
from onyx.task.windowed.build import windowing_of


def recover_windows(runtime: Runtime, allocation: Allocation) -> bool:
    """Take over the shards of this peer; False while the job waits for it."""
    its, delivery = runtime.program.stateful, runtime.delivery
    if its is None or allocation.windowing is not None:
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
    allocation.windowing = recovered_state(
        runtime,
        allocation.wiring,
        shards_of_rank(allocation.wiring, shards),
        carry_over_windows(runtime),
        partial(_windowing, runtime, allocation.wiring, first),
    )
    return allocation.windowing is not None


def _windowing(
    runtime: Runtime, wiring: Wiring, first: int | None, recovered: Recovered
) -> Windowing:
    """In the background. A processor begins there, which is code of the user's."""
    make = partial(windowing_of, runtime, wiring, first, recovered)
    if runtime.program.processing is None:
        return make()
    return run_beside(runtime.assignment, Phase.RECOVER.value, make)
