"""Whether the workers can run jobs that are to upgrade others, asked through the log.

A question is put once for a job and a set of workers; the answers come with the log. So a look at
an OnyxJob never waits for them: it comes again.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from onyx.ids import JobId
from onyx.model.job import Job
from onyx.replica.command import Command
from onyx.replica.commands import SubmitJob
from onyx.replica.entry import Entry
from onyx.replica.state import Replica
from onyx.submission.worker_checks import ANSWER_TIMEOUT_S, NOBODY, WorkerCheck, lacks_peers
from onyx_operator.logs.state import Upgrade

CHECKS_MAX = 200
"""Questions that are remembered, the newest ones."""
AGAIN_S = 5.0
"""Between two looks whether there are other workers now."""


class _Question(msgspec.Struct):
    check: WorkerCheck
    old: JobId
    asked_s: float
    reported: bool = False
    """`answered` has returned it."""


class Checks:
    """The checks of one cluster. `hear` may be called from another thread than the rest, which is
    one."""

    def __init__(self) -> None:
        self._questions: dict[str, _Question] = {}
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
        self, found: Upgrade, old: JobId, submission: SubmitJob, replica: Replica, now_s: float
    ) -> tuple[Upgrade, Command | None]:
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
        digest = submission.spec.digest
        known, question = self._questions.get(digest), None
        if known is None or self._is_stale(known, replica, now_s):
            known = self._ask(digest, old, now_s)
            question = known.check.command
        if not known.check.complete:
            waits = f"{goes_on} until all workers have said whether they can run the new one"
            if question is None:
                waits += f": {known.check.silent()}"
            return replace(found, waits=waits, again_in_s=AGAIN_S), question
        if problems := known.check.problems():
            return replace(found, refusal="\n".join(problems), again_in_s=AGAIN_S), None
        return found, None

    def _ask(self, digest: str, old: JobId, now_s: float) -> _Question:
        self._questions.pop(digest, None)
        while len(self._questions) >= CHECKS_MAX:
            del self._questions[next(iter(self._questions))]
        asked = self._questions[digest] = _Question(WorkerCheck(digest), old, now_s)
        return asked

    def _is_stale(self, known: _Question, replica: Replica, now_s: float) -> bool:
        """Others are there now, or some did not answer: perhaps they do when asked again."""
        if not known.check.complete:
            return now_s - known.asked_s >= ANSWER_TIMEOUT_S
        return known.check.members != frozenset(replica.groups)
