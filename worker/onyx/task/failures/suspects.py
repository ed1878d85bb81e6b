"""Segments over which worker processes have died are worked on one by one, and not for ever.

A batch that has some of them (or is too large to be recorded) is taken apart: first all others,
then each suspect as a batch of its own, alone in the user code of its process. Whatever runs over a
batch (functions, conditions, windows, outputs) is covered by that, and another death is of one
segment. One that has lost too many processes is not tried any more: it has failed, with
`PoisonSegment`, as if the function had raised that, and what becomes of it is decided where it is
for every failure.

Control items that came with the batch stay behind its last part. Without ids (at-most-once) nothing
is taken apart: a batch whose process dies is lost and does not come again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onyx.errors import PoisonSegment
from onyx.flow.batch import U64, Batch, Indices
from onyx.flow.leaves import Leaves
from onyx.ledger.lineage import partitions_of, positions_of
from onyx.recorder import ROOTS_MAX
from onyx.replica import losses
from onyx.replica.state import Replica, Run
from onyx.task.failures.failure import Failure
from onyx.task.phases.table import Phase
from onyx.task.task import Task


def isolate(task: Task) -> None:
    """Take the batch that was read apart, if it has suspects."""
    batch = task.batch
    runs = losses.suspects(task.services.replica(), task.job_id, task.name)
    if batch is None or batch.roots is None or not (runs or len(batch) > ROOTS_MAX):
        return
    found = _among(batch.roots, runs)
    if not found.any() and len(batch) <= ROOTS_MAX:
        return
    parts = task.parts
    others = np.flatnonzero(~found)
    for start in range(0, len(others), ROOTS_MAX):
        parts.waiting.append(_part(batch, others[start : start + ROOTS_MAX]))
    parts.waiting.extend(_part(batch, np.array([each])) for each in np.flatnonzero(found))
    parts.suspects = int(found.sum())
    parts.controls, task.controls = task.controls, []
    next_part(task)


def next_part(task: Task) -> None:
    """Go on with what was taken apart; a segment that is not tried any more goes on as failed."""
    parts = task.parts
    task.batch = parts.waiting.popleft()
    task.alone = len(parts.waiting) < parts.suspects
    if not parts.waiting:
        task.controls, parts.controls = [*parts.controls, *task.controls], []
    if task.alone:
        _refuse(task, task.batch)


def _refuse(task: Task, batch: Batch) -> None:
    assert batch.roots is not None
    assert batch.ids is not None
    replica = task.services.replica()
    partition, position = int(partitions_of(batch.roots)[0]), int(positions_of(batch.roots)[0])
    key = losses.key_of(task.name, partition, position, f"{int(batch.ids[0]):x}")
    count, most = losses.counted(replica, task.job_id, key), task.services.settings.task.losses_max
    if count < most:
        return
    error = PoisonSegment(
        f"the segment that comes from {_named(replica, task, partition, position)} has ended its "
        f"worker process {count} times inside the code of task {task.name} of job {task.job_id} "
        f"and is not tried any more (setting task.losses_max = {most}); the log of the worker has "
        "the exit code or signal"
    )
    if count > 2 * (most + 1):  # a few are reported late, when others have tried it meanwhile
        detail = f"{error}; what was to be done about it has ended the process as well"
        raise Failure(Phase.ROUTE.value, error, detail)
    task.leaves = Leaves([], np.empty(0, dtype=np.intp), None, [(0, error)])
    task.timer.applied()
    task.phase = Phase.ROUTE


def check_task(task: Task) -> None:
    """Raise when worker processes have died again and again in this task's hooks or triggers."""
    most = task.services.settings.task.losses_max
    count = losses.counted(task.services.replica(), task.job_id, task.name)
    if count >= most:
        error = PoisonSegment(
            f"a hook, plugin or trigger of task {task.name} of job {task.job_id} has ended its "
            f"worker process {count} times, over no segment (setting task.losses_max = {most}); "
            "the log of the worker has the phase and the exit code or signal"
        )
        raise Failure(Phase.LOAD_JOB.value, error)


def _named(replica: Replica, task: Task, partition: int, position: int) -> str:
    registered = replica.partitions.get(task.job_id)
    for source in sorted(registered or ()):
        found = registered[source] if registered else None
        if found is not None and found.first <= partition < found.first + found.count:
            return f"partition {partition - found.first} of {source} at position {position}"
    return f"partition {partition} at position {position}"


def _among(roots: U64, runs: tuple[Run, ...]) -> NDArray[np.bool_]:
    partitions, positions = partitions_of(roots), positions_of(roots)
    found = np.zeros(len(roots), dtype=np.bool_)
    for partition, first, last in runs:
        found |= (partitions == partition) & (positions >= first) & (positions <= last)
    return found


def _part(batch: Batch, chosen: Indices) -> Batch:
    assert batch.roots is not None
    assert batch.ids is not None
    segments = [batch.segments[index] for index in chosen.tolist()]
    return Batch(segments, batch.roots[chosen], batch.ids[chosen])
