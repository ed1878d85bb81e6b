"""The end of a windowed task: when all that feeds it has ended, its windows fire for the last time.

`exhaust-input` is proposed when all that was emitted has arrived. Only then may outputs be sealed.
"""

from __future__ import annotations

from onyx.replica.commands.exhaust_input import ExhaustInput
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.runtime import Runtime
from onyx.task.window_state.windowing import Windowing
from onyx.task.windowed.fire import fire
from onyx.transport.interface import FLUSH

COMPLETED_AT_ONCE = 16
"""Shards that fire for the last time together: a state in memory is not gone through for each."""


def end(runtime: Runtime, allocation: Allocation, windowing: Windowing) -> bool:
    """Go on with ending, if it is time for that; True when something was done."""
    if windowing.ended or not _fed_no_more(runtime, allocation):
        return False
    left = [shard for shard in windowing.shards if shard not in windowing.closed]
    if left and windowing.ready_to_fire:
        _complete(windowing, left if windowing.held.at_once else left[:COMPLETED_AT_ONCE])
        return True
    if windowing.emissions.wants_flush(ends=True):
        allocation.outbox.broadcast(FLUSH)
        return True
    if left or windowing.emissions.unsettled or not windowing.durable:
        return False
    windowing.ended = True
    _propose_exhausted(runtime.assignment, windowing)
    if runtime.sink is None:
        allocation.ends.pass_on()
    return True


def has_ended(windowing: Windowing | None) -> bool:
    """Whether the task's windows, if any, have fired for the last time and all has arrived."""
    return windowing is None or windowing.ended


def _complete(windowing: Windowing, shards: list[int]) -> None:
    """Shards fire for the last time."""
    now_ms = windowing.clock.wall_ms()

    def through() -> None:
        for shard in shards:
            windowing.close(shard)

    fire(windowing, lambda: windowing.held.complete(shards, now_ms), through)


def _propose_exhausted(assignment: Assignment, windowing: Windowing) -> None:
    first = windowing.emissions.first_partition
    if first is None:
        return
    # Also without shards: the group writes when the last of its peers has proposed.
    partitions = [first + shard for shard in windowing.shards]
    job, task = assignment.job_id, assignment.task
    assignment.propose(ExhaustInput(job=job, task=task, partitions=tuple(partitions)))


def _fed_no_more(runtime: Runtime, allocation: Allocation) -> bool:
    exhausted = runtime.services.replica().run(runtime.job_id).exhausted_inputs
    its = runtime.program.stateful
    ended = its is not None and bool(exhausted) and all(s in exhausted for s in its.fed_by)
    return runtime.delivery.fed_no_more(allocation.ends, ended)
