"""Whether a job would run once it is submitted, found out before an old job is killed for it.

The replica says whether there will be peers; the workers say whether they can run the job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from msgspec.structs import replace

from onyx.errors import Problem, Unavailable
from onyx.log.interface import ClientLog, Origin
from onyx.model.job import Job
from onyx.replica.command import Entry
from onyx.replica.commands import SubmitJob
from onyx.replica.state import Replica
from onyx.submission import upgrades, worker_checks
from onyx.upgrade.plan import Plan

Deliver = Callable[[Entry | Origin, Replica], None]
Follow = Callable[[Deliver, Replica], AbstractContextManager[None]]
"""Call for each entry behind a replica, within a `with`."""


def examine(
    log: ClientLog,
    replica: Replica,
    job: Job,
    submission: SubmitJob,
    follow: Follow,
    asks: bool = True,
) -> Plan:
    """What a job would carry over from the job that it upgrades, and all reasons against it.

    Args:
        log: where manifests are stored and workers are asked.
        replica: the current one.
        job: the job.
        submission: the command that would submit it.
        follow: how to follow the log behind a replica.
        asks: whether workers and peers are checked too.

    Raises:
        UserError: the old job has no state to carry over.
        Unavailable: not all workers have answered in time.
    """
    found = Plan((), ())
    if job.upgrade is not None:
        found = upgrades.plan(log, replica, job, job.upgrade)
    if asks and not found.problems:
        found = replace(found, problems=_doubts(log, replica, submission, follow))
    return found


def _doubts(
    log: ClientLog, replica: Replica, submission: SubmitJob, follow: Follow
) -> tuple[Problem, ...]:
    """Why a job would not run; empty when it would."""
    upgrades = submission.spec.upgrades
    old = upgrades if upgrades in replica.jobs else None
    problems = []
    if old is not None and (lacking := worker_checks.lacks_peers(replica, old, submission)):
        hint = f"add workers; or upgrade it without them: onyx suspend {old} first"
        problems.append(Problem("spec.upgrade.from", lacking, hint))
    if old is not None or replica.groups:
        answers = _asked(log, replica, submission.spec.digest, follow)
        problems += [Problem("spec", each) for each in answers]
    return tuple(problems)


def _asked(log: ClientLog, replica: Replica, digest: str, follow: Follow) -> tuple[str, ...]:
    """Why workers cannot run a job, as they answer; empty when all can."""
    found, complete = worker_checks.WorkerCheck(digest), threading.Event()

    def hear(item: Entry | Origin, replica: Replica) -> None:
        if isinstance(item, Entry):
            found.hear(item, replica)
            if found.complete:
                complete.set()

    with follow(hear, replica):
        log.append(found.command)
        if not complete.wait(worker_checks.ANSWER_TIMEOUT_S):
            raise Unavailable(
                f"it is not known whether the workers can run the job: {found.silent()} within "
                f"{worker_checks.ANSWER_TIMEOUT_S:g} s; nothing was changed"
            )
    return found.problems()
