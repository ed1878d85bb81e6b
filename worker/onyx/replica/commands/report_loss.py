"""A worker process has died inside user code: over which segments, by its supervisor or successor.

With one segment alone that one is guilty, with several they come under suspicion, and with none (a
hook, a trigger by time) it counts against the task (`losses`). What follows from the counts is
decided by those who get the segments: a limit is a setting, and no entry of the log.
"""

from __future__ import annotations

from typing import Annotated

from immutables import Map
from msgspec import Meta
from msgspec.structs import replace

from onyx.ids import Position, TaskName
from onyx.replica import losses
from onyx.replica.command import Command
from onyx.replica.losses import COUNTED_MAX, REPORTS_KEPT_MAX, SUSPECT_RUNS_MAX
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
            key = losses.key_of(self.task, partition, at, self.id)
            before = counts.get(key, 0)
        if key not in counts and len(counts) >= COUNTED_MAX:
            return counts
        return counts.set(key, before + 1)

    def _suspect(self, run: JobRun) -> Map[TaskName, tuple[SuspectRun, ...]]:
        known = run.suspects.get(self.task, ())
        runs = losses.with_suspects(known, self.runs, alone=bool(self.id))
        return run.suspects if runs == known else run.suspects.set(self.task, runs)
