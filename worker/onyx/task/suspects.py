"""Segments over which worker processes have died are worked on one by one, and not for ever.

A batch that has some of them is taken apart: first all others, then each suspect as a batch of its
own, alone in the user code of its process, and last those over which one has died: others pass
before it does again, and who kills processes from outside meets another one each time. Whatever
runs over a batch (functions, conditions, windows, outputs) is covered by that, and another death is
of one segment. A batch that is larger than the task wants, or than can be recorded, comes in pieces
as well. A suspect that has lost too many processes is not tried any more: it has failed, with
`PoisonSegment`, as if the function had raised that, and what becomes of it is decided where it is
for every failure.

Control items that came with the batch stay behind its last piece. Without ids (at-most-once)
nothing is taken apart: a batch whose process dies is lost and does not come again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onyx.base.runs import array_of
from onyx.errors import PoisonSegment
from onyx.flow.batch import U64, Batch, Indices
from onyx.flow.leaves import Leaves
from onyx.ids import JobId
from onyx.ledger.lineage import partitions_of, positions_of
from onyx.program.failure import Failure
from onyx.program.phases import Phase
from onyx.replica.commands import report_loss
from onyx.replica.state import Replica, SuspectRun
from onyx.task.parts import Assignment, Work
from onyx.telemetry.recorder import ROOTS_MAX

TOO_LARGE = 1.5
"""A batch is split that has more segments than the task wants by this factor."""


def isolate(assignment: Assignment, work: Work, segments_max: int) -> bool:
    """Split what was read, if it has suspects, is too large or of several forms; True when it was
    split.

    Args:
        segments_max: about how many segments a piece has at most.
    """
    if work.batch is None:
        return False
    batches, work.beside = [work.batch, *work.beside], []
    runs = assignment.latest_run().suspects_of(assignment.task)
    split = [_split(batch, runs, min(segments_max, ROOTS_MAX)) for batch in batches]
    together = [each for its, _ in split for each in its]
    alone = [each for _, its in split for each in its]
    alone.sort(key=lambda each: _deaths_alone(assignment, each))
    if not alone and len(together) == 1:
        return False
    pieces = work.pieces
    pieces.waiting.extend([*together, *alone])
    pieces.suspects = len(alone)
    pieces.controls, work.controls = work.controls, []
    return True


def _split(
    batch: Batch, runs: tuple[SuspectRun, ...], most: int
) -> tuple[list[Batch], list[Batch]]:
    """A batch in pieces of about so many segments, and its suspects one by one."""
    count = len(batch)
    fits = count <= ROOTS_MAX and count <= most * TOO_LARGE
    if batch.roots is None or (fits and not runs):
        return [batch], []
    found = _among(array_of(batch.roots), runs)
    if fits and not found.any():
        return [batch], []
    others = np.flatnonzero(~found)
    pieces = [_run(batch, others[first : first + most]) for first in range(0, len(others), most)]
    return pieces, [batch.take(np.array([each])) for each in np.flatnonzero(found)]


def _run(batch: Batch, rows: Indices) -> Batch:
    """The segments at these indices, which mostly are without a gap."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    return batch.slice(first, last) if last - first == len(rows) else batch.take(rows)


def take_apart(work: Work) -> None:
    """The batch comes again, segment by segment, before what else waits."""
    batch, pieces = work.batch, work.pieces
    assert batch is not None, "taken apart"
    if not pieces.waiting:
        pieces.controls, work.controls = work.controls, []
    singles = [batch.take(np.array([each])) for each in range(len(batch))]
    pieces.waiting.extendleft(reversed(singles))
    work.leaves = work.routed = None


def next_piece(assignment: Assignment, work: Work) -> bool:
    """Go on with the next piece of a batch that was split; False when it is a segment that is not
    tried any more, which has failed.

    Raises:
        Failure: handling its failure ends the process as well.
    """
    pieces = work.pieces
    work.batch = pieces.waiting.popleft()
    work.alone = len(pieces.waiting) < pieces.suspects
    if not pieces.waiting:
        work.controls, pieces.controls = [*pieces.controls, *work.controls], []
    if not work.alone:
        return True
    error = _poison(assignment, work.batch)
    if error is None:
        return True
    work.leaves = Leaves([], np.empty(0, dtype=np.intp), None, [(0, error)])
    work.timer.applied()
    return False


def _poison(assignment: Assignment, batch: Batch) -> PoisonSegment | None:
    """Why a suspect is not tried any more; None if it is."""
    replica, job, task = assignment.services.replica(), assignment.job_id, assignment.task
    partition, position, id = _place(batch)
    most = assignment.services.settings.task.losses_max
    count = report_loss.over_segment(replica, job, task, partition, position, id)
    if count < most:
        return None
    error = PoisonSegment(
        f"the segment that comes from {_named(replica, job, partition, position)} has ended its "
        f"worker process {count} times inside the code of task {task} of job {job} and is not "
        f"tried any more (setting task.losses_max = {most}); the log of the worker has the exit "
        "code or signal"
    )
    if count > 2 * (most + 1):  # a few are reported late, when others have tried it meanwhile
        detail = f"{error}; handling its failure has ended the process as well"
        raise Failure(Phase.ROUTE.value, error, detail)
    return error


def _place(batch: Batch) -> tuple[int, int, str]:
    """Partition and position of the input segment that one segment comes from, and its id."""
    assert batch.roots is not None
    assert batch.ids is not None
    root = array_of(batch.roots[:1])
    return int(partitions_of(root)[0]), int(positions_of(root)[0]), f"{int(batch.ids[0]):x}"


def _deaths_alone(assignment: Assignment, batch: Batch) -> int:
    """How many processes have died over one segment with nothing beside it."""
    key = report_loss.key_of(assignment.task, *_place(batch))
    return assignment.latest_run().losses.get(key, 0)


def check_task(assignment: Assignment) -> None:
    """Check whether this task's hooks or triggers may be tried.

    Raises:
        Failure: worker processes have died in them again and again.
    """
    job, task = assignment.job_id, assignment.task
    most = assignment.services.settings.task.losses_max
    count = report_loss.over_task(assignment.services.replica(), job, task)
    if count >= most:
        error = PoisonSegment(
            f"a hook, plugin or trigger of task {task} of job {job} has ended its worker process "
            f"{count} times, over no segment (setting task.losses_max = {most}); the log of the "
            "worker has the phase and the exit code or signal"
        )
        raise Failure(Phase.LOAD_JOB.value, error)


def _named(replica: Replica, job: JobId, partition: int, position: int) -> str:
    for source, found in sorted(replica.partitions(job).items()):
        if found.first <= partition < found.first + found.count:
            return f"partition {partition - found.first} of {source} at position {position}"
    return f"partition {partition} at position {position}"


def _among(roots: U64, runs: tuple[SuspectRun, ...]) -> NDArray[np.bool_]:
    partitions, positions = partitions_of(roots), positions_of(roots)
    found = np.zeros(len(roots), dtype=np.bool_)
    for partition, first, last, _ in runs:
        found |= (partitions == partition) & (positions >= first) & (positions <= last)
    return found
