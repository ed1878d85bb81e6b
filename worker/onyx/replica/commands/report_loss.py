"""A worker process has died inside user code: over which segments, by its supervisor or successor.

With one segment alone that one is guilty, with several they come under suspicion, and with none (a
hook, a trigger by time) it counts against the task. What follows from the counts is
decided by those who get the segments: a limit is a setting, and no entry of the log.

A process that dies inside user code puts the segments of its batch under suspicion; who gets one of
them works on it alone. So the next death is of one segment. That one is guilty, and then all deaths
count against it, those over batches that it was in as well. A segment that was in such batches and
has never been alone in a death is innocent, however many there were.

A process that was killed may be a victim: the kernel, when memory is short, ends whoever has most
of it. So its batch is under suspicion and no more, and only kills over a segment alone count
against that one. What a death outside user code concerns is never here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from immutables import Map
from msgspec import Meta
from msgspec.structs import replace

from onyx.ids import JobId, Position, TaskName
from onyx.replica.command import Command
from onyx.replica.spec import Job, Task
from onyx.replica.state import JobRun, Replica, SuspectRun

_Number = Annotated[int, Meta(ge=0, lt=2**48)]
_Run = Annotated[tuple[_Number, ...], Meta(min_length=3, max_length=3)]


class ReportLoss(Command, frozen=True):
    """Count the death of a process against what it was working on."""

    job: Job
    task: Task
    loss: Annotated[str, Meta(min_length=1, max_length=64)]
    """Its own name: a report may come twice."""
    runs: Annotated[tuple[_Run, ...], Meta(max_length=SUSPECT_RUNS_MAX)] = ()
    """Partition, first and last position of the segments."""
    id: Annotated[str, Meta(max_length=16)] = ""
    """The id of the segment, if it was one and nobody else was in user code."""
    afresh: bool = False
    """The process had lived for long: what its task had lost before does not count. Segments have
    no such luck, nobody dies over the same one by chance."""
    killed: bool = False
    """By SIGKILL, which code seldom sends to itself: over several segments it counts for none."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a report that was counted, and for a job that does not run."""
        job, task = self.job, self.task
        if job not in replica.jobs or task not in replica.spec(job).by_name:
            return replica
        run = replica.run(job)
        if self.loss in run.loss_reports:
            return replica
        return replica.with_run(
            job,
            replace(
                run,
                losses=self._count(run),
                suspects=self._suspect(run),
                loss_reports=(*run.loss_reports, self.loss)[-REPORTS_KEPT_MAX:],
            ),
        )

    def _count(self, run: JobRun) -> Map[str, int]:
        counts = run.losses
        if self.runs and not self.id:
            return counts
        key, before = str(self.task), 0 if self.afresh else counts.get(self.task, 0)
        if self.runs:
            partition, at, _ = self.runs[0]
            key = key_of(self.task, partition, at, self.id)
            before = counts.get(key, 0)
        if key not in counts and len(counts) >= COUNTED_MAX:
            counts = Map({each: counts[each] for each in counts if _is_remembered(each, run)})
        return counts if len(counts) >= COUNTED_MAX else counts.set(key, before + 1)

    def _suspect(self, run: JobRun) -> Map[TaskName, tuple[SuspectRun, ...]]:
        known = run.suspects.get(self.task, ())
        runs = with_suspects(known, self.runs, counted=not self.id and not self.killed)
        return run.suspects if runs == known else run.suspects.set(self.task, runs)


SUSPECT_RUNS_MAX = 256
"""Runs of suspects of one task; the newest stay."""
COUNTED_MAX = 1_000
"""Losses counted of one job; for those beyond, segments are forgotten that are no suspects now."""
REPORTS_KEPT_MAX = 64
"""Reports kept of one job, to know one that comes again."""


def key_of(task: TaskName, partition: int, position: int, id: str) -> str:
    """Under which losses of one segment are counted."""
    return f"{partition}:{position} {id} {task}"


def over_task(replica: Replica, job: JobId, task: TaskName) -> int:
    """How often a process has died in code of a task over no segment."""
    return replica.run(job).losses.get(task, 0)


def over_segment(
    replica: Replica, job: JobId, task: TaskName, partition: int, position: int, id: str
) -> int:
    """How many processes have died with a segment in user code, if one of them had nothing else
    there; 0 otherwise: then it may only have been near."""
    run = replica.run(job)
    alone = run.losses.get(key_of(task, partition, position, id), 0)
    if not alone:
        return 0
    return alone + sum(
        deaths
        for number, first, last, deaths in run.suspects_of(task)
        if number == partition and first <= position <= last
    )


def _is_remembered(key: str, run: JobRun) -> bool:
    """Whether losses are those of a task over no segment, or of a segment under suspicion."""
    place, _, rest = key.partition(" ")
    if not rest:
        return True
    partition, _, position = place.partition(":")
    single = (int(partition), int(position), int(position))
    return any(each[:3] == single for each in run.suspects_of(TaskName(rest.split(" ")[1])))


def with_suspects(
    known: Sequence[SuspectRun], found: Sequence[SuspectRun], counted: bool
) -> tuple[SuspectRun, ...]:
    """The runs of suspects after another death, the newest at most `SUSPECT_RUNS_MAX`.

    Args:
        found: runs that were in user code, without deaths.
        counted: whether it counts against these. A segment that was alone is counted by itself.
    """
    deaths = {run[:3]: run[3] for run in known}
    for run in found:
        deaths[tuple(run)] = deaths.get(tuple(run), 0) + counted
    assert all(count >= 0 for count in deaths.values()), "nobody comes back to life"
    return tuple((*run, count) for run, count in deaths.items())[-SUSPECT_RUNS_MAX:]
