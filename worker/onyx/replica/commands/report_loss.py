"""A worker process has died inside user code; its successor says over what.

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
from onyx.replica.command import Arguments, Diff, Job, Task, no_reactions
from onyx.replica.losses import COUNTED_MAX, REPORTS_KEPT_MAX, SUSPECT_RUNS_MAX
from onyx.replica.state import NOTHING, Replica

NAME = "report-loss"

_Number = Annotated[int, Meta(ge=0, lt=2**48)]
_Run = Annotated[tuple[_Number, ...], Meta(min_length=3, max_length=3)]


class Args(Arguments, frozen=True):
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


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    job, task = args.job, args.task
    reports = replica.loss_reports.get(job, ())
    if job not in replica.jobs or task not in replica.tasks.get(job, ()) or args.loss in reports:
        return replica
    return replace(
        _suspecting(_counting(replica, args), args),
        loss_reports=replica.loss_reports.set(job, (*reports, args.loss)[-REPORTS_KEPT_MAX:]),
    )


def _counting(replica: Replica, args: Args) -> Replica:
    counts = replica.losses.get(args.job, NOTHING)
    if args.runs and not args.id:
        return replica
    key, before = str(args.task), 0 if args.afresh else counts.get(args.task, 0)
    if args.runs:
        partition, at, _ = args.runs[0]
        key = losses.key_of(args.task, partition, at, args.id)
        known = losses.suspects(replica, args.job, args.task)
        # It was among those of the death before, too.
        before = counts.get(key, int(losses.is_suspect(known, partition, at)))
    if key not in counts and len(counts) >= COUNTED_MAX:
        return replica
    return replace(replica, losses=replica.losses.set(args.job, counts.set(key, before + 1)))


def _suspecting(replica: Replica, args: Args) -> Replica:
    known = losses.suspects(replica, args.job, args.task)
    runs = (*known, *(run for run in args.runs if run not in known))[-SUSPECT_RUNS_MAX:]
    if runs == known:
        return replica
    tasks = replica.suspects.get(args.job, NOTHING).set(args.task, runs)
    return replace(replica, suspects=replica.suspects.set(args.job, tasks))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    if old.loss_reports is new.loss_reports:
        return None
    return {"job": args.job, "task": args.task, "runs": len(args.runs), "id": args.id}


reactions = no_reactions
