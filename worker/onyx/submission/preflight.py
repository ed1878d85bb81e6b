"""Whether a job would run once it is submitted: asked of the workers and of the replica before
anything is stopped for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from onyx.errors import Problem, Unavailable
from onyx.ids import JobId
from onyx.log.interface import ClientLog, Origin
from onyx.model.job import Job
from onyx.replica.entry import Command, Entry
from onyx.replica.state import Replica
from onyx.submission import upgrades, worker_checks
from onyx.upgrade.plan import Plan

Deliver = Callable[[Entry | Origin, Replica], None]
Follow = Callable[[Deliver, Replica], AbstractContextManager[None]]
"""Call for each entry behind a replica, within a `with`."""


def examined(
    log: ClientLog,
    replica: Replica,
    job: Job,
    submission: Command,
    follow: Follow,
    asks: bool = True,
) -> Plan:
    """What a job would carry over from the one in whose place it would come, and why it could not.

    Args:
        submission: the entry that would submit it.
        asks: whether workers and peers are asked about too.

    Raises:
        UserError: there is nothing of the other job to carry over.
        Unavailable: not all workers have answered in time.
    """
    found = Plan((), ())
    if job.resume_point is not None:
        found = upgrades.plan(log, replica, job, job.resume_point)
    if asks and not found.problems:
        found = replace(found, problems=_doubts(log, replica, submission, follow))
    return found


def _doubts(
    log: ClientLog, replica: Replica, submission: Command, follow: Follow
) -> tuple[Problem, ...]:
    """Why a job would not run; empty if nothing is known against it."""
    resumes = submission.args.get("resumes")
    former = JobId(resumes) if resumes in replica.jobs else None
    problems = []
    if former is not None and (lacking := worker_checks.lacks_peers(replica, former, submission)):
        hint = f"add workers; or let go of that job first: onyx suspend {former}"
        problems.append(Problem("spec.resumePoint.job", lacking, hint))
    if former is not None or replica.groups:
        told = _vouched(log, replica, str(submission.args["digest"]), follow)
        problems += [Problem("spec", each) for each in told]
    return tuple(problems)


def _vouched(log: ClientLog, replica: Replica, digest: str, follow: Follow) -> tuple[str, ...]:
    """Why workers cannot run a job; empty if all can."""
    found, complete = worker_checks.Vouching(digest), threading.Event()

    def hear(item: Entry | Origin, replica: Replica) -> None:
        if isinstance(item, Entry):
            found.hear(item, replica)
            if found.complete:
                complete.set()

    with follow(hear, replica):
        log.append(found.command)
        if not complete.wait(worker_checks.VOUCH_TIMEOUT_S):
            raise Unavailable(
                f"whether the job can be run is not known: {found.silent()} within "
                f"{worker_checks.VOUCH_TIMEOUT_S:g} s; nothing was changed"
            )
    return found.problems()
