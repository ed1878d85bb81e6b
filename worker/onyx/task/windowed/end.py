"""The end of a windowed task: when all that feeds it has ended, its windows fire for the last time.

The log is told when all that was emitted has arrived; only then may outputs be sealed.
"""

from __future__ import annotations

from onyx.task.task import Task
from onyx.task.windowed.fire import fire
from onyx.task.windowed.shards import first_partition
from onyx.task.windowed.state import Windowing
from onyx.transport.interface import FLUSH

COMPLETED_AT_ONCE = 16
"""Shards that fire for the last time together: a state in memory is not gone through for each."""


def end(task: Task, windowing: Windowing) -> bool:
    """Go on with ending, if it is time for that; True when something was done."""
    if windowing.ended or not _fed_no_more(task):
        return False
    left = [shard for shard in windowing.shards if shard not in windowing.closed]
    if left and windowing.ready_to_fire:
        _complete(task, windowing, left[:COMPLETED_AT_ONCE])
        return True
    if windowing.emissions.wants_flush(ends=True):
        task.live.outbox.broadcast(FLUSH)
        return True
    if left or windowing.emissions.unsettled or not windowing.durable:
        return False
    windowing.ended = True
    if task.static.tracked:
        _propose_exhausted(task, windowing)
    elif task.static.sink is None:
        task.live.ends.pass_on()
    return True


def has_ended(task: Task) -> bool:
    """Whether its windows, if it has any, have fired for the last time and all has arrived."""
    return task.live.windowing is None or task.live.windowing.ended


def _complete(task: Task, windowing: Windowing, shards: list[int]) -> None:
    """Shards fire for the last time."""
    now_ms = task.services.clock.wall_ms()

    def through() -> None:
        for shard in shards:
            windowing.close(shard)

    fire(task, windowing, lambda: windowing.windows.complete(shards, now_ms), through)


def _propose_exhausted(task: Task, windowing: Windowing) -> None:
    first = first_partition(task)
    assert first is not None, "registered before this peer was ready"
    partitions = [first + shard for shard in windowing.shards]
    if partitions:
        task.propose("exhaust-input", job=task.job_id, task=task.name, partitions=partitions)


def _fed_no_more(task: Task) -> bool:
    live = task.live
    if not task.static.tracked:
        return live.ends.all_arrived() and bool(live.wiring.upstream)
    exhausted = task.services.replica().exhausted_inputs.get(task.job_id)
    its = task.static.windowed
    if its is None or exhausted is None:
        return False
    return all(source in exhausted for source in its.fed_by)
