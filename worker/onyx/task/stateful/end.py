"""The end of a windowed task: when all that feeds it has ended, its windows fire for the last time.

`exhaust-input` is proposed when all that was emitted has arrived. Only then may outputs be sealed.
"""

from __future__ import annotations

from onyx.ids import TaskName
from onyx.model.workflow import ancestors
from onyx.replica.commands.exhaust_input import ExhaustInput
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.runtime import Runtime
from onyx.task.source.frontier import newest_of
from onyx.task.state.keeper import StateKeeper
from onyx.task.stateful.fire import fire
from onyx.transport.interface import FLUSH

COMPLETED_AT_ONCE = 16
"""Shards that fire for the last time together: a state in memory is not gone through for each."""


def end(runtime: Runtime, allocation: Allocation, keeper: StateKeeper) -> bool:
    """Go on with ending, if it is time for that; True when something was done."""
    if keeper.ended or not _fed_no_more(runtime, allocation):
        return False
    left = [shard for shard in keeper.shards if shard not in keeper.closed]
    if left and keeper.ready_to_fire:
        if not _end_is_known(runtime, keeper):
            return False
        _complete(keeper, left if keeper.operator.at_once else left[:COMPLETED_AT_ONCE])
        return True
    if keeper.emissions.wants_flush(ends=True):
        allocation.outbox.broadcast(FLUSH)
        return True
    if left or keeper.emissions.unsettled or not keeper.durable:
        return False
    keeper.ended = True
    _propose_exhausted(runtime.assignment, keeper)
    if runtime.sink is None:
        allocation.ends.pass_on()
    return True


def _end_is_known(runtime: Runtime, keeper: StateKeeper) -> bool:
    """Whether the operator knows where event time ends, if that matters to it. Inputs store it
    before they end."""
    if keeper.operator.end_is_known:
        return True
    job = runtime.program.job
    above = ancestors(job.workflow, runtime.task)
    inputs = [TaskName(task) for task in sorted(above) if job.entry(task).type == "input"]

    def read() -> tuple[int | None]:
        return (newest_of(runtime.services, runtime.job_id, inputs),)

    found = runtime.assignment.background.poll("end of event time", read)
    if found is not None:
        keeper.operator.ends_at(*found)
    return found is not None


def has_ended(keeper: StateKeeper | None) -> bool:
    """Whether the task's windows, if any, have fired for the last time and all has arrived."""
    return keeper is None or keeper.ended


def _complete(keeper: StateKeeper, shards: list[int]) -> None:
    """Shards fire for the last time."""
    now_ms = keeper.clock.wall_ms()

    def through() -> None:
        for shard in shards:
            keeper.close(shard)

    fire(keeper, lambda: keeper.operator.complete(shards, now_ms), through)


def _propose_exhausted(assignment: Assignment, keeper: StateKeeper) -> None:
    first = keeper.emissions.first_partition
    if first is None:
        return
    # Also without shards: the group writes when the last of its peers has proposed.
    partitions = [first + shard for shard in keeper.shards]
    job, task = assignment.job_id, assignment.task
    assignment.propose(ExhaustInput(job=job, task=task, partitions=tuple(partitions)))


def _fed_no_more(runtime: Runtime, allocation: Allocation) -> bool:
    exhausted = runtime.services.replica().run(runtime.job_id).exhausted_inputs
    its = runtime.program.operator
    ended = its is not None and bool(exhausted) and all(s in exhausted for s in its.fed_by)
    return runtime.delivery.fed_no_more(allocation.ends, ended)
