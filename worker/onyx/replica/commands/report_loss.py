"""A worker process has died inside user code; its successor reports over which segments.

With one segment it counts against that one, with several they come under suspicion, and with none
(a hook, a trigger by time) it counts against the task. What follows from the counts is decided by
those who get the segments: a limit is a setting, and no entry of the log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from onyx.ids import Position
from onyx.replica import losses
from onyx.replica.command import Command
from onyx.replica.losses import COUNTED_MAX, REPORTS_KEPT_MAX, SUSPECT_RUNS_MAX
from onyx.replica.spec import Job, Task
from onyx.replica.state import NOTHING, Replica

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
    """Of the segment, if it was one and nobody else was in user code."""
    afresh: bool = False
    """The process had lived for long: what its task had lost before does not count. Segments have
    no such luck, nobody dies over the same one by chance."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change for a report that was counted, and for a job that does not run."""
        job, task = self.job, self.task
        reports = replica.loss_reports.get(job, ())
        if (
            job not in replica.jobs
            or task not in replica.specs[job].by_name
            or self.loss in reports
        ):
            return replica
        return replace(
            self._suspecting(self._counting(replica)),
            loss_reports=replica.loss_reports.set(job, (*reports, self.loss)[-REPORTS_KEPT_MAX:]),
        )

    def _counting(self, replica: Replica) -> Replica:
        counts = replica.losses.get(self.job, NOTHING)
        if self.runs and not self.id:
            return replica
        key, before = str(self.task), 0 if self.afresh else counts.get(self.task, 0)
        if self.runs:
            partition, at, _ = self.runs[0]
            key = losses.key_of(self.task, partition, at, self.id)
            known = losses.suspects(replica, self.job, self.task)
            # It was among those of the death before, too.
            before = counts.get(key, int(losses.is_suspect(known, partition, at)))
        if key not in counts and len(counts) >= COUNTED_MAX:
            return replica
        return replace(replica, losses=replica.losses.set(self.job, counts.set(key, before + 1)))

    def _suspecting(self, replica: Replica) -> Replica:
        known = losses.suspects(replica, self.job, self.task)
        runs = (*known, *(run for run in self.runs if run not in known))[-SUSPECT_RUNS_MAX:]
        if runs == known:
            return replica
        tasks = replica.suspects.get(self.job, NOTHING).set(self.task, runs)
        return replace(replica, suspects=replica.suspects.set(self.job, tasks))
