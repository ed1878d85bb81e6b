"""Whether a job would run once it is submitted, found out before an old job is killed for it.

The replica says whether there will be peers; the workers say whether they can run the job. A
`check-job` entry asks every group that is a member at its position, because any of them may get
a peer of the job, and one that lacks a module would kill it. Each answers with `vouch-job`. A group
that leaves need not answer; one that joins later is not asked, like with any submission
(`WorkerCheck`). Pure: entries are handed in one by one, because the client and the operator follow
the log anyway.

Questions over gRPC were rejected: clients and the operator may not reach the workers' ports, and
the operator has no gRPC.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager

from msgspec.structs import replace

from onyx.errors import Problem, Unavailable
from onyx.ids import GroupId, JobId
from onyx.log.interface import ClientLog, Origin
from onyx.model.job import Job
from onyx.replica import machine
from onyx.replica.command import Entry
from onyx.replica.commands import CheckJob, SubmitJob, VouchJob
from onyx.replica.scheduling.explain import why_waiting
from onyx.replica.state import NOTHING, Replica
from onyx.submission import upgrades
from onyx.upgrade.plan import UpgradePlan

ANSWER_TIMEOUT_S = 30.0
"""Longest wait for the answers of all workers, which may import modules first."""
NOBODY = "no worker is there to check whether it can run: start some, then submit it again"
_NAMED_MAX = 3
"""Workers that are named for one problem."""
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
) -> UpgradePlan:
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
    found = UpgradePlan((), ())
    if job.upgrade is not None:
        found = upgrades.plan_upgrade(log, replica, job, job.upgrade)
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
    if (lacking := peers_problem(replica, submission)) is not None:
        problems.append(lacking)
    if old is not None or replica.groups:
        answers = _asked(log, replica, submission.spec.digest, follow)
        problems += [Problem("spec", each) for each in answers]
    return tuple(problems)


def _asked(log: ClientLog, replica: Replica, digest: str, follow: Follow) -> tuple[str, ...]:
    """Why workers cannot run a job, as they answer; empty when all can."""
    found, complete = WorkerCheck(digest), threading.Event()

    def hear(item: Entry | Origin, replica: Replica) -> None:
        if isinstance(item, Entry):
            found.hear(item, replica)
            if found.complete:
                complete.set()

    with follow(hear, replica):
        log.append(found.command)
        if not complete.wait(ANSWER_TIMEOUT_S):
            raise Unavailable(
                f"it is not known whether the workers can run the job: {found.silent()} within "
                f"{ANSWER_TIMEOUT_S:g} s; nothing was changed"
            )
    return found.problems()


class WorkerCheck:
    """One check of a job, and the answers to it."""

    def __init__(self, digest: str) -> None:
        """`digest`: of the job in the chunk store."""
        self.check = uuid.uuid4().hex
        self.command = CheckJob(id=self.check, digest=digest)
        self._asked: dict[GroupId, str] | None = None
        self._answers: dict[GroupId, tuple[str, ...]] = {}

    def hear(self, entry: Entry, replica: Replica) -> None:
        """Take the next entry of the log, with the replica after it."""
        command = entry.command
        if self._asked is None:
            if isinstance(command, CheckJob) and command.id == self.check:
                self._asked = {group: _address(replica, group) for group in replica.groups}
            return
        if isinstance(command, VouchJob) and command.id == self.check:
            self._answers[command.group] = command.problems
        gone = [group for group in self._asked if group not in replica.groups]
        for group in gone:
            del self._asked[group]

    @property
    def complete(self) -> bool:
        """Whether every group that was asked has answered or left."""
        return self._asked is not None and self._asked.keys() <= self._answers.keys()

    @property
    def members(self) -> frozenset[GroupId]:
        """Groups that were asked and have not left."""
        return frozenset(self._asked or ())

    def problems(self) -> tuple[str, ...]:
        """Why the job cannot run, once complete: each reason with the workers that gave it."""
        asked = self._asked or {}
        if not asked:
            return (NOBODY,)
        workers: dict[str, list[str]] = {}
        for group in sorted(asked):
            for problem in self._answers.get(group, ()):
                workers.setdefault(problem, []).append(asked[group])
        return tuple(f"{problem} ({_by(who, len(asked))})" for problem, who in workers.items())

    def silent(self) -> str:
        """Which workers have not answered, for a message."""
        if self._asked is None:
            return "the check is not in the log"
        left = [where for group, where in sorted(self._asked.items()) if group not in self._answers]
        return f"no answer from {_named(left)}"


def peers_problem(replica: Replica, submission: SubmitJob) -> Problem | None:
    """That a job which upgrades a running one would have no peers; None: it would have some."""
    old = submission.spec.upgrades
    if old is None or old not in replica.jobs:
        return None
    lacking = lacks_peers(replica, old, submission)
    hint = f"add workers; or upgrade it without them: onyx suspend {old} first"
    return Problem("spec.upgrade.from", lacking, hint) if lacking else None


def lacks_peers(replica: Replica, old: JobId, submission: SubmitJob) -> str:
    """Why a job would have no peers although the old job frees its own: found by applying the
    submission to the replica. Empty if it would have peers, or if the old job has none either."""
    if not any(replica.run(old).allocation.values()):
        return ""
    after = machine.apply(replica, Entry(type(replica.version)(replica.version + 1), submission))
    why = why_waiting(after, submission.id)
    if why is None:
        return ""
    return f"it would wait, with job {old} killed: it {why.removeprefix('it ')}"


def _address(replica: Replica, group: GroupId) -> str:
    """The address that a worker announced with its peers; its id when it has no peers."""
    for peer in replica.groups_index.get(group, ()):
        address = replica.peer_sites.get(peer, NOTHING).get("address")
        if address:
            return str(address)
    return str(group)


def _by(who: list[str], asked: int) -> str:
    everyone = "all workers" if asked > 1 else "the worker"
    return everyone if len(who) == asked else f"{len(who)} of {asked} workers: {_named(who)}"


def _named(who: list[str]) -> str:
    more = len(who) - _NAMED_MAX
    named = ", ".join(who[:_NAMED_MAX])
    return f"{named} and {more} more" if more > 0 else named
