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
        if not _end_is_known(runtime, windowing):
            return False
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


def _end_is_known(runtime: Runtime, windowing: Windowing) -> bool:
    """Whether timers, if there are any, know where event time ends. The last watermark says so as
    well, but may come after the end or not at all, while inputs store it before they end."""
    its, job = runtime.program.keyed, runtime.program.job
    if its is None or its.on_timer is None or windowing.keyed.end_is_known:
        return True
    above = ancestors(job.workflow, runtime.task)
    inputs = [TaskName(task) for task in sorted(above) if job.entry(task).type == "input"]

    def read() -> tuple[int | None]:
        return (newest_of(runtime.services, runtime.job_id, inputs),)

    found = runtime.assignment.background.poll("end of event time", read)
    if found is not None:
        windowing.keyed.ends_at(*found)
    return found is not None


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
