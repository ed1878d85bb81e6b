"""Whether the job that a spec asks for can upgrade the object's job, found out from the log, the
two manifests and the answers of workers: what `onyx submit --upgrade --dry-run` says.

A question to the workers is put once for a job and a set of workers; the answers come with the log.
So a look at an OnyxJob never waits for them: it comes again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from onyx.errors import UserError
from onyx.ids import JobId
from onyx.log.interface import ChunkGone, LogReader
from onyx.model.job import Job
from onyx.replica.command import Command, Entry
from onyx.replica.commands import SubmitJob
from onyx.replica.commands.load_job import loaded_for
from onyx.replica.state import Replica
from onyx.submission import upgrades
from onyx.submission.preflight import ANSWER_TIMEOUT_S, NOBODY, WorkerCheck, lacks_peers
from onyx.upgrade.plan import UpgradePlan, upgrading
from onyx_operator.conditions import problem_lines
from onyx_operator.logs.follower import Follower
from onyx_operator.logs.state import UpgradeVerdict

ANEW = "another restartNonce runs the new one from its beginning"
CARRY_OVER_WAIT_S = 1.0
"""Between two looks whether a job has carried over its state: no event announces that."""
CHECKS_MAX = 200
"""Questions that are remembered, the newest ones."""
AGAIN_S = 5.0
"""Between two looks whether there are other workers now."""


class UpgradeJudge:
    """The upgrades of one log. Belongs to the event loop."""

    def __init__(
        self, log: Follower, checks: Checks, append: Callable[[Command], Awaitable[None]]
    ) -> None:
        """`append` writes a command and waits until it is seen in the log."""
        self._log = log
        self._checks = checks
        self._append = append

    async def judged(self, job: Job, old: JobId) -> UpgradeVerdict:
        """Whether a job can upgrade the job `old`.

        Raises:
            Unavailable: the log cannot be reached.
        """
        client = self._log.opened()
        found = await self._log.ask(upgrade, client.log, self._log.replica, job, old)
        if found.refusal or found.waits or old not in self._log.replica.jobs:
            return found
        # Where it upgrades none, it begins with the savepoint with which the old job has not begun.
        wanted = job if found.upgrades is None else upgrading(job, found.upgrades)
        entry = self._checks.prepared(old, wanted)
        if entry is None:
            entry = await self._log.ask(client.prepare, JobId("new"), wanted)
            self._checks.remember(old, wanted, entry)
        now_s = asyncio.get_running_loop().time()
        found, question = self._checks.judge(found, old, entry, self._log.replica, now_s)
        if question is not None:
            try:
                await self._append(question)
            except ChunkGone:
                self._checks.forget(old)
                raise
        return found

    async def begins(self, job_id: JobId, job: Job) -> UpgradeVerdict:
        """Whether a job that is to be submitted can begin with its savepoint, as workers see it.

        Raises:
            Unavailable: the log cannot be reached.
        """
        entry = self._checks.prepared(job_id, job)
        if entry is None:
            entry = await self._log.ask(self._log.opened().prepare, job_id, job)
            self._checks.remember(job_id, job, entry)
        now_s = asyncio.get_running_loop().time()
        found, question = self._checks.begins(job_id, entry, self._log.replica, now_s)
        if question is not None:
            try:
                await self._append(question)
            except ChunkGone:
                self._checks.forget(job_id)
                raise
        return found


def upgrade(log: LogReader, replica: Replica, job: Job, old: JobId) -> UpgradeVerdict:
    """Whether `job` can upgrade the job `old`. Blocks.

    Raises:
        Unavailable: the log cannot be reached.
    """
    holder = upgrades.state_holder(log, replica, old)
    if holder != old and replica.run(old).allocation:
        waits = (
            f"job {old} is carrying over the state of job {holder}; the new one upgrades it then"
        )
        return UpgradeVerdict(holder, waits=waits, again_in_s=CARRY_OVER_WAIT_S)
    if _is_unloaded(replica, holder):
        if job.upgrade is not None and job.upgrade.savepoint is not None:
            return UpgradeVerdict(remarks=f"job {old} had not begun with its savepoint")
        why = f"job {old} has not begun with its savepoint: give spec.upgrade.savepoint"
        return UpgradeVerdict(holder, refusal=f"{why}; {ANEW}")
    section = upgrading(job, holder).upgrade
    assert section is not None
    try:
        found = upgrades.plan_upgrade(log, replica, job, section, instead_of=old)
    except UserError as error:
        return UpgradeVerdict(holder, refusal=f"{error}; {ANEW}")
    if found.problems:
        return UpgradeVerdict(holder, refusal=problem_lines(found.problems))
    return UpgradeVerdict(holder, remarks=_remarks(found), pauses=bool(found.pauses))


def _is_unloaded(replica: Replica, job: JobId) -> bool:
    """Whether a job is a savepoint of which not all is there."""
    if (loaded := replica.loaded(job)) is not None:
        return not loaded.whole
    return job not in replica.records and any(loaded_for(each) == job for each in replica.records)


def _remarks(found: UpgradePlan) -> str:
    """The tasks and windows whose state is not carried over."""
    steps = [each for each in found.steps if each.fate in ("dropped", "initialized")]
    return ", ".join(f"{each.part} {each.name} is {each.fate}" for each in steps)


class _WorkerQuestion(msgspec.Struct):
    check: WorkerCheck
    old: JobId
    asked_s: float
    reported: bool = False
    """`answered` has returned it."""


class Checks:
    """The checks of one cluster. `hear` may be called from another thread than the rest, which is
    one."""

    def __init__(self) -> None:
        self._questions: dict[str, _WorkerQuestion] = {}
        self._prepared: dict[JobId, tuple[Job, SubmitJob]] = {}

    def prepared(self, old: JobId, job: Job) -> SubmitJob | None:
        """The command that would submit a job to upgrade `old`, if it was remembered."""
        known, entry = self._prepared.get(old, (None, None))
        return entry if known == job else None

    def remember(self, old: JobId, job: Job, entry: SubmitJob) -> None:
        """Keep the answer to a check, for whoever asks again."""
        while len(self._prepared) >= CHECKS_MAX:
            del self._prepared[next(iter(self._prepared))]
        self._prepared[old] = job, entry

    def forget(self, old: JobId) -> None:
        """What was prepared to upgrade `old` has been collected."""
        self._prepared.pop(old, None)

    def hear(self, entry: Entry, replica: Replica) -> None:
        """The next entry of the log."""
        for question in tuple(self._questions.values()):
            question.check.hear(entry, replica)

    def answered(self) -> list[JobId]:
        """Old jobs about whose upgrades all workers have answered since the last call."""
        done = [
            each for each in self._questions.values() if each.check.complete and not each.reported
        ]
        for each in done:
            each.reported = True
        return [each.old for each in done]

    def judge(
        self,
        found: UpgradeVerdict,
        old: JobId,
        submission: SubmitJob,
        replica: Replica,
        now_s: float,
    ) -> tuple[UpgradeVerdict, Command | None]:
        """Whether a job can upgrade `old`, as far as that is known, and a question to append to the
        log.

        Args:
            found: what the manifests say.
            submission: the entry that would submit the job.
            replica: as it is now.
            now_s: of a clock that never goes back.
        """
        if old not in replica.jobs:
            return found, None
        goes_on = f"job {old} goes on"
        if not replica.groups:
            return replace(found, waits=f"{goes_on}: {NOBODY}", again_in_s=AGAIN_S), None
        if lacking := lacks_peers(replica, old, submission):
            waits = f"{goes_on}, for the new one has no peers: {lacking}"
            return replace(found, waits=waits, again_in_s=AGAIN_S), None
        waits = f"{goes_on} until all workers have said whether they can run the new one"
        return self._answered(found, old, submission.spec.digest, waits, replica, now_s)

    def begins(
        self, job: JobId, submission: SubmitJob, replica: Replica, now_s: float
    ) -> tuple[UpgradeVerdict, Command | None]:
        """Whether a job can begin with its savepoint, and a question. Arguments as of `judge`.
        Without workers it waits for peers anyway, and whoever loads the savepoint looks at it."""
        found, waits = UpgradeVerdict(), "workers are asked whether it can begin with its savepoint"
        if not replica.groups:
            return found, None
        digest = submission.spec.digest
        known = self._questions.get(digest)
        # What was not there, or not to be read, may be since.
        tried = known is not None and known.check.complete and bool(known.check.problems())
        if known is not None and tried and now_s - known.asked_s >= ANSWER_TIMEOUT_S:
            self._questions.pop(digest)
        return self._answered(found, job, digest, waits, replica, now_s)

    def _answered(
        self,
        found: UpgradeVerdict,
        old: JobId,
        digest: str,
        waits: str,
        replica: Replica,
        now_s: float,
    ) -> tuple[UpgradeVerdict, Command | None]:
        """What workers have said, or are asked. `waits`: why one waits for that."""
        known, question = self._questions.get(digest), None
        if known is None or self._is_stale(known, replica, now_s):
            known = self._ask(digest, old, now_s)
            question = known.check.command
        if not known.check.complete:
            if question is None:
                waits += f": {known.check.silent()}"
            return replace(found, waits=waits, again_in_s=AGAIN_S), question
        if problems := known.check.problems():
            return replace(found, refusal="\n".join(problems), again_in_s=AGAIN_S), None
        return found, None

    def _ask(self, digest: str, old: JobId, now_s: float) -> _WorkerQuestion:
        self._questions.pop(digest, None)
        while len(self._questions) >= CHECKS_MAX:
            del self._questions[next(iter(self._questions))]
        asked = self._questions[digest] = _WorkerQuestion(WorkerCheck(digest), old, now_s)
        return asked

    def _is_stale(self, known: _WorkerQuestion, replica: Replica, now_s: float) -> bool:
        """Others are there now, or some did not answer: perhaps they do when asked again."""
        if not known.check.complete:
            return now_s - known.asked_s >= ANSWER_TIMEOUT_S
        return known.check.members != frozenset(replica.groups)
