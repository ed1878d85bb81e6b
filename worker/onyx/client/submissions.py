"""How a client hands in jobs: checked first, then stored, then named by an entry of the log.

What is checked besides the log is a list of functions that whoever makes the client gives it, so a
client knows nothing of plugins, Spark or the functions of users. A draft is what a job becomes
before: its id, its stored manifest, what is scheduled.

A job is brought to rest before one with `engine: spark` takes its place. Whoever pauses a job lets
it go on if nothing came of it. A job that stays paused was paused by a process that was killed:
`onyx jobs` says so, and how it goes on.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from onyx.base.path_names import path_name
from onyx.errors import JobRefused, ManifestError, Problem, Unavailable
from onyx.history.replicas import Replicas
from onyx.ids import JobId, Position
from onyx.log.acts import Acts
from onyx.log.interface import ChunkGone, ClientLog
from onyx.model.canonical import to_mapping
from onyx.model.job import Job
from onyx.model.keys.kinds import JOB_ID
from onyx.replica.commands import PauseJob, ResumeJob, SubmitJob
from onyx.replica.commands.load_job import loaded_for
from onyx.replica.jobs import is_known, restless
from onyx.replica.scheduling.explain import TASKS_NAMED_MAX
from onyx.replica.spec_of_job import spec_of
from onyx.replica.state import Replica
from onyx.settings import LogSettings
from onyx.submission import preflight
from onyx.submission.quotas import over_quota, within_quota
from onyx.upgrade.plan import UpgradePlan, drop_unused_upgrade

Check = Callable[[Job], Sequence[Problem]]
"""What is wrong with a job, as far as that is known without a cluster."""
_OTHER_ID = "choose another metadata.jobId, or leave it out for a new one each time"
REST_TIMEOUT_S = 120.0
"""For what is in flight to arrive: a file is published at once, a transaction soon."""


def id_of(job: Job) -> JobId:
    """The id that a job gives itself, or a new one."""
    return JobId(path_name(str(job.metadata.get(JOB_ID, uuid.uuid4())), "the id of a job"))


class Drafts:
    """Makes the entries of one client; nothing is appended."""

    def __init__(self, log: ClientLog, job_scheduler: str, limits: LogSettings) -> None:
        self._log = log
        self._job_scheduler = job_scheduler
        self._limits = limits

    def prepare(self, job_id: JobId, job: Job, owner: str = "") -> SubmitJob:
        """Store a job; the entry that would submit it.

        Raises:
            ManifestError: the job asks for more than a job may have.
            UserError: the job has too many tasks for an entry of the log.
            NoRoom: the tenancy would hold too much.
        """
        if problems := self.problems(job):
            raise ManifestError(problems)
        digest = self.store(job)
        entry = submission(job_id, job, digest, self._job_scheduler, owner)
        return msgspec.structs.replace(entry, spec=within_quota(entry.spec, self._limits))

    def problems(self, job: Job) -> tuple[Problem, ...]:
        """What a job asks for beyond what one may have."""
        return over_quota(job, self._limits)

    def store(self, job: Job) -> str:
        """Store the manifest of a job, if there is room; its digest."""
        data = msgspec.json.encode(to_mapping(job), order="sorted")
        return self._log.put_chunk(data, if_room=True)


class Submission(msgspec.Struct, frozen=True):
    """A submitted job, and the position of its entry in the log."""

    job: JobId
    position: Position


class Submissions:
    """The submissions of one client. `Client` says what each call means and raises."""

    def __init__(
        self,
        log: ClientLog,
        acts: Acts,
        replicas: Replicas,
        checks: Sequence[Check],
        limits: LogSettings,
    ) -> None:
        self._log = log
        self._acts = acts
        self._replicas = replicas
        self._drafts = Drafts(log, replicas.job_scheduler, limits)
        self._checks = (*checks, self._drafts.problems)

    def submit_all(self, jobs: Sequence[Job]) -> list[Submission]:
        """Submit jobs, in this order, after all of them have been checked."""
        if problems := [each for job in jobs for each in self._problems(job)]:
            raise ManifestError(problems)
        replica, entries = self._replicas.at(None), dict[JobId, tuple[SubmitJob, Job]]()
        old = []
        wanted = [(id_of(job), job) for job in map(drop_unused_upgrade, jobs)]
        self._check_room(replica, wanted)
        for job_id, job in wanted:
            entry = self._drafts.prepare(job_id, job)
            old += self._check(replica, job, job_id, entry)
            if entries.setdefault(job_id, (entry, job))[0].spec.digest != entry.spec.digest:
                raise JobRefused(f"two of the jobs have the id {job_id}: {_OTHER_ID}")
        with ExitStack() as rests:
            for each in old:
                rests.enter_context(at_rest(self._replicas, self._acts, each))
            return [Submission(job_id, self._hand_in(*each)) for job_id, each in entries.items()]

    def _check_room(self, replica: Replica, wanted: Sequence[tuple[JobId, Job]]) -> None:
        """Raises NoRoom when the tenancy would have too many jobs. A repeat adds none, nor does a
        job that ends another one."""
        new = {
            job_id
            for job_id, job in wanted
            if not is_known(replica, job_id)
            and (job.upgrade is None or job.upgrade.from_job not in replica.jobs)
        }
        if new:
            self._log.usage().check_jobs(len(replica.jobs), len(new))

    def _check(self, replica: Replica, job: Job, job_id: JobId, entry: SubmitJob) -> list[JobId]:
        """The jobs that are to come to rest before."""
        old, taken = list[JobId](), replica.digest_of(job_id)
        if taken is None and job.upgrade is not None:
            asks = job.upgrade.from_job in replica.jobs or job.upgrade.savepoint is not None
            found = self._examined(replica, job, entry, asks)
            if found.problems:
                raise JobRefused("\n".join(map(str, found.problems)))
            old = [JobId(found.pauses)] if found.pauses else []
        if taken is not None and taken != entry.spec.digest:
            raise JobRefused(f"job {job_id} exists already with other content: {_OTHER_ID}")
        return old

    def examine(self, job: Job) -> UpgradePlan:
        """What a job would carry over from the job that it upgrades."""
        job = drop_unused_upgrade(job)
        if problems := self._problems(job):
            return UpgradePlan((), problems)
        entry = self._drafts.prepare(JobId(str(uuid.uuid4())), job)
        return self._examined(self._replicas.at(None), job, entry)

    def hand_in(
        self, job_id: JobId, job: Job, owner: str, replica: Replica, by: str = ""
    ) -> Position:
        """Write the submission of a job whose id is made of its content. `replica` may be a little
        old."""
        job = drop_unused_upgrade(job)
        self._check_room(replica, [(job_id, job)])
        return self._hand_in(self._drafts.prepare(job_id, job, owner), job, by)

    def prepare(self, job_id: JobId, job: Job, owner: str = "") -> SubmitJob:
        """Store a job; the entry that would submit it."""
        return self._drafts.prepare(job_id, drop_unused_upgrade(job), owner)

    @contextmanager
    def paused(self, job: JobId) -> Iterator[None]:
        """Have the inputs of a job read nothing new for the time of a block."""
        run = self._replicas.at(None).run(job)
        if run.suspended or run.is_paused:
            yield
            return
        try:
            self._acts.append(PauseJob(job=job))
            yield
        finally:
            run = self._replicas.at(None).run(job)
            if run.is_paused and not run.suspended:  # resuming ends both
                self._acts.append(ResumeJob(job=job))

    def _examined(
        self, replica: Replica, job: Job, entry: SubmitJob, asks: bool = True
    ) -> UpgradePlan:
        follow = self._replicas.follow
        return preflight.examine(self._log, replica, job, entry, follow, asks=asks)

    def _problems(self, job: Job) -> tuple[Problem, ...]:
        return tuple(problem for check in self._checks for problem in check(job))

    def _hand_in(self, entry: SubmitJob, job: Job, by: str = "") -> Position:
        """Append the submission of a job that was stored. If it took so long that the job has been
        collected, it is stored again."""
        try:
            return self._acts.append(entry, by)
        except ChunkGone:
            self._drafts.store(job)
            return self._acts.append(entry, by)


def submission(
    job_id: JobId, job: Job, digest: str, job_scheduler: str, owner: str = ""
) -> SubmitJob:
    """The command that submits a job.

    Args:
        digest: content address of the job in the chunk store.
        job_scheduler: the one of the cluster.
        owner: see `JobSpec`.

    Raises:
        JobRefused: the job has a percentage, which the scheduler of the cluster does not read.
    """
    if job.percentage is not None and job_scheduler != "percentage":
        raise JobRefused(
            f"job {job.name!r} has a percentage, which has no effect: the job scheduler of this "
            f"cluster is {job_scheduler}, and only percentage reads it; leave it out"
        )
    spec = spec_of(job, digest, owner)
    if job.upgrade is not None and job.upgrade.savepoint is not None:
        spec = msgspec.structs.replace(spec, upgrades=loaded_for(job_id))
    return SubmitJob(id=job_id, spec=spec)


@contextmanager
def at_rest(replicas: Replicas, acts: Acts, job: JobId) -> Iterator[None]:
    """Bring a job to rest, for as long as the body runs; if that raises, the job goes on, unless
    somebody has suspended it meanwhile.

    Raises:
        Unavailable: it does not come to rest in time, or somebody has resumed or suspended it.
    """
    try:
        acts.append(PauseJob(job=job))  # which may be in the log although this raises
        _await_rest(replicas, job)
        yield
    except BaseException:
        run = replicas.at(None).run(job)
        if run.is_paused and not run.suspended:  # resuming ends both
            acts.append(ResumeJob(job=job))
        raise


def _await_rest(replicas: Replicas, job: JobId) -> None:
    """Also until it has ended."""
    newest, over = replicas.at(None), threading.Event()

    def look(_: object, replica: Replica) -> None:
        nonlocal newest
        newest, run = replica, replica.run(job)
        if run.suspended or not run.is_paused or not restless(replica, job):
            over.set()

    look(None, newest)
    with replicas.follow(look, newest):
        if not over.wait(REST_TIMEOUT_S):
            left = ", ".join(restless(newest, job)[:TASKS_NAMED_MAX])
            raise Unavailable(
                f"job {job} does not come to rest within {REST_TIMEOUT_S:g} s: segments of {left} "
                "are in flight; it goes on, and nothing was changed"
            )
    if job in newest.jobs and restless(newest, job):
        raise Unavailable(f"somebody has resumed or suspended job {job}, which did not rest yet")
