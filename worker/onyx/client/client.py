"""A client of a cluster: submits and kills jobs, waits for them, and tells how they are.

Clients have no master to ask: they write to the log, and fold the log into the same replica as
every peer. All they write is idempotent by the id of the job, so a command is repeated when in
doubt.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from onyx.errors import JobRefused, OnyxError, UserError
from onyx.ids import GroupId, JobId, Position
from onyx.log import job_documents
from onyx.log.interface import ClientLog, Origin
from onyx.model.job import Job
from onyx.model.keys.kinds import JOB_ID
from onyx.model.parsing.job import parse_mapping, to_mapping
from onyx.path_names import path_name
from onyx.replica import canonical, machine
from onyx.replica.commands.drain_job import DrainJob
from onyx.replica.commands.gc import Gc
from onyx.replica.commands.kill_job import KillJob
from onyx.replica.commands.resume_job import ResumeJob
from onyx.replica.commands.submit_job import SubmitJob
from onyx.replica.commands.suspend_job import SuspendJob
from onyx.replica.entry import Entry
from onyx.replica.scheduling.explain import why_waiting
from onyx.replica.state import Replica
from onyx.replica.submission import submission
from onyx.seams import SystemClock
from onyx.stalls import Stall, cause, sentence
from onyx.submission import preflight, upgrades
from onyx.submission.plugin_options import wrong_options
from onyx.upgrade.plan import Plan, drop_unused_upgrade

FORGOTTEN_AT_ONCE = 500
"""Jobs named in one entry of the log, whose size is limited."""

JobState = Literal["running", "waiting", "suspended", "draining", "completed", "killed", "unknown"]
"""`suspended` says that a job has no peers because of that, whether it drains or not; a job that is
`draining` may have peers or wait for some."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How a job is, as of a position of the log."""

    id: JobId
    name: str
    state: JobState
    as_of: Position
    peers: int = 0
    waiting_for: str = ""
    """Why a job has no peers: what it needs and what there is, that it is suspended, or that its
    manifest cannot be read."""
    exception: dict[str, Any] | None = None
    """What killed it, if a task did."""
    stalled: str = ""
    """Why it does not advance, as workers report it; empty while it does, and when it waits."""
    stalls: tuple[Stall, ...] = ()
    """Every task on every peer of which that was reported."""


@dataclass(frozen=True, slots=True)
class Submission:
    job: JobId
    position: Position


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection of garbage came to."""

    jobs: tuple[JobId, ...]
    """Those that are forgotten."""
    position: Position
    """The log starts after this one."""


class Client:
    """One connection to the log of a tenancy. Use as a context manager, or call `close`."""

    def __init__(self, log: ClientLog, job_scheduler: str) -> None:
        """`job_scheduler` is what a tenancy starts with that nobody has used before."""
        self.log = log
        self._job_scheduler = job_scheduler

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.log.close()

    def submit(self, job: Job) -> Submission:
        """Hand a job to the cluster.

        The id is `metadata.jobId` of the job if it has one, which makes the call safe to repeat. A
        job with a resume point comes in the place of another one, which it kills; one that names no
        job there begins by itself. Another one that has not ended is killed only if every worker
        has said that it can run the job, and if there will be peers for it.

        Raises:
            JobRefused: options of a plugin are wrong, the id is taken by another job, or it cannot
                come in the place of the other one.
            UserError: there is nothing left of that.
            Unavailable: not all workers have answered in time; nothing was stopped.
        """
        if problems := wrong_options(job):
            raise JobRefused("\n".join(map(str, problems)))
        job = drop_unused_upgrade(job)
        job_id = JobId(_named(str(job.metadata.get(JOB_ID, uuid.uuid4()))))
        digest = self._store(job)
        replica = self.replica()
        taken = replica.job_digests.get(job_id)
        entry = self._entry(job_id, job, digest)
        if taken is None and job.upgrade is not None:
            asks = job.upgrade.from_job in replica.jobs
            found = preflight.examine(self.log, replica, job, entry, self.follow, asks=asks)
            if found.problems:
                raise JobRefused("\n".join(map(str, found.problems)))
        if taken is not None and taken != digest:
            raise JobRefused(
                f"job {job_id} exists already with other content: choose another metadata.jobId, "
                "or leave it out for a new one each time"
            )
        return Submission(job_id, self.log.append(entry))

    def examine(self, job: Job) -> Plan:
        """What would become of a job if it were submitted: what it would carry over from the one in
        whose place it would come, and all that speaks against it. Nothing is changed.

        Raises:
            UserError: there is nothing of the other job to carry over.
            Unavailable: not all workers have answered in time.
        """
        job = drop_unused_upgrade(job)
        if problems := wrong_options(job):
            return Plan((), problems)
        entry = self.prepare(JobId(str(uuid.uuid4())), job)
        return preflight.examine(self.log, self.replica(), job, entry, self.follow)

    def hand_in(self, job_id: JobId, job: Job, owner: str) -> Position:
        """Write the submission of a job whose id is made of its content, without reading the log.

        The first one of an id counts, a repeat changes nothing. `owner` is kept with the job, for
        whoever is to end it.

        Raises:
            UserError: the job has too many tasks for an entry of the log.
        """
        return self.log.append(self.prepare(job_id, job, owner))

    def prepare(self, job_id: JobId, job: Job, owner: str = "") -> SubmitJob:
        """Store a job; the entry that would submit it. Raises as `hand_in`."""
        job = drop_unused_upgrade(job)
        return self._entry(job_id, job, self._store(job), owner)

    def _store(self, job: Job) -> str:
        return self.log.put_chunk(msgspec.json.encode(to_mapping(job), order="sorted"))

    def _entry(self, job_id: JobId, job: Job, digest: str, owner: str = "") -> SubmitJob:
        scheduler = self._parameters()["job-scheduler"]
        return submission(job_id, job, digest, scheduler, owner)

    def kill(self, job: JobId) -> None:
        """Stop a job for ever.

        Raises:
            UserError: no job has this id.
        """
        self._require(self.replica(), job)
        self.log.append(KillJob(job=job))

    def suspend(self, job: JobId) -> None:
        """Take its peers from a job until it is resumed; what it has done stays.

        A repeat changes nothing.

        Raises:
            UserError: no job has this id, or it has ended.
        """
        self._change(SuspendJob(job=job), "suspended")

    def resume(self, job: JobId) -> None:
        """Let a suspended job ask for peers again; its inputs replay from their frontiers.

        Changes nothing for a job that is not suspended.

        Raises:
            UserError: no job has this id, or it has ended.
        """
        self._change(ResumeJob(job=job), "resumed")

    def drain(self, job: JobId) -> None:
        """Let a job read nothing new, complete what is pending, seal its outputs and complete.

        There is no way back. A suspended job stays suspended and does this when it is resumed. A
        job that has never had peers completes at once.

        Raises:
            UserError: no job has this id, or it has ended.
        """
        self._change(DrainJob(job=job), "drained")

    def _change(self, command: SuspendJob | ResumeJob | DrainJob, done: str) -> None:
        job, replica = command.job, self.replica()
        self._require(replica, job)
        for ended, jobs in (
            ("completed", replica.completed_jobs),
            ("killed", replica.killed_jobs),
        ):
            if job in jobs:
                raise UserError(f"job {job} is {ended}: only a job that runs can be {done}")
        self.log.append(command)

    def gc(self) -> Collected:
        """Forget the jobs that have ended, with all that is kept of them, and start the log from
        the replica as it is then. Their ids are free again. A job stays from which another one has
        not taken over yet.

        Raises:
            Unavailable: ZooKeeper cannot be reached; call it again.
        """
        before = self.replica()
        taken, needed = upgrades.progress(self.log, before)
        ended = tuple(
            job for job in (*before.completed_jobs, *before.killed_jobs) if job not in needed
        )
        for job in ended:
            self.log.delete_documents(job_documents.frontiers(job))
            self.log.delete_documents(job_documents.exception(job))
            self.log.delete_documents(job_documents.stalls(job))
            self.log.delete_documents(job_documents.place(job))
        position, caller = before.version, str(uuid.uuid4())
        for start in range(0, max(1, len(ended)), FORGOTTEN_AT_ONCE):
            some = ended[start : start + FORGOTTEN_AT_ONCE]
            done = tuple(job for job in taken if before.upgrades[job] in some)
            position = self.log.append(Gc(id=caller, jobs=some, carried_over=done))
        replica = self.replica(at=position)
        self.log.collect(Origin(replica.version, canonical.encode(replica)))
        return Collected(ended, replica.version)

    def wait(
        self,
        job: JobId,
        timeout_s: float | None = None,
        progress: Callable[[Replica], None] = lambda _: None,
    ) -> bool:
        """Wait for a job to end: True when it completed, False when it was killed.

        Raises:
            UserError: no job has this id.
            TimeoutError: it had not ended after `timeout_s`.
        """
        self._require(self.replica(), job)
        ended = threading.Event()
        answer: list[bool] = []

        def look(_: Entry | Origin, replica: Replica) -> None:
            progress(replica)
            if job in replica.completed_jobs or job in replica.killed_jobs:
                answer.append(job in replica.completed_jobs)
                ended.set()

        with self.follow(look):
            if not ended.wait(timeout_s):
                raise TimeoutError(f"job {job} has not ended after {timeout_s} s")
        return answer[0]

    def replica(self, at: Position | None = None) -> Replica:
        """The replica after the newest entry, or after the one at a position.

        If the log was collected beyond that position, the replica that it starts from.
        """
        replica = self._start()
        while True:
            entries = self.log.read(replica.version)
            if not entries or entries[0].position > replica.version + 1:
                # Entries may have been collected since; a listing would not show it.
                origin = self.log.origin(above=replica.version)
                if origin.replica:
                    replica = canonical.decode(origin.replica)
                    continue
            if not entries:
                return replica
            for entry in entries:
                if at is not None and entry.position > at:
                    return replica
                if entry.position > replica.version + 1 and entry is not entries[0]:
                    break
                replica = machine.apply(replica, entry)

    @contextmanager
    def follow(
        self, deliver: Callable[[Entry | Origin, Replica], None], after: Replica | None = None
    ) -> Iterator[None]:
        """Call `deliver` for each entry from the origin on, or behind the replica `after`, with the
        replica after it."""
        replica = self._start() if after is None else after

        def apply(item: Entry | Origin) -> None:
            nonlocal replica
            if isinstance(item, Origin):
                replica = canonical.decode(item.replica)
            else:
                replica = machine.apply(replica, item)
            deliver(item, replica)

        unsubscribe = self.log.subscribe(replica.version, apply)
        try:
            yield
        finally:
            unsubscribe()

    def job(self, job: JobId) -> Job:
        """The job as it was submitted."""
        return self._job(self.replica(), job)

    def status(self, job: JobId) -> JobStatus:
        return self.status_at(self.replica(), job)

    def statuses(self) -> list[JobStatus]:
        """Every job that the replica knows, in the order of submission."""
        replica = self.replica()
        known = (*replica.jobs, *replica.completed_jobs, *replica.killed_jobs)
        return [self.status_at(replica, job) for job in known]

    def exception(self, job: JobId) -> dict[str, Any] | None:
        """What a task stored before it killed its job."""
        document = self.log.get_document(job_documents.exception(job))
        if document is None:
            return None
        report: dict[str, Any] = msgspec.json.decode(document.data)
        return report

    def stalls(self, replica: Replica, job: JobId) -> list[Stall]:
        """The tasks of a job that do not advance, as the workers that are there report it."""
        allocation = replica.allocations.get(job, _NOBODY)
        peers = {peer for each in allocation.values() for peer in each}
        found: list[Stall] = []
        for group in self.log.list_documents(job_documents.stalls(job)) if peers else ():
            if group not in replica.groups_index:
                continue
            document = self.log.get_document(job_documents.stall(job, GroupId(group)))
            if document is not None:
                found += msgspec.json.decode(document.data, type=list[Stall])
        return [each for each in found if each.peer in peers]

    def status_at(self, replica: Replica, job: JobId) -> JobStatus:
        """How a job is as of a replica that the caller has."""
        state: JobState = "unknown"
        waiting_for = None
        peers = sum(map(len, replica.allocations.get(job, _NOBODY).values()))
        if job in replica.completed_jobs:
            state = "completed"
        elif job in replica.killed_jobs:
            state = "killed"
        elif job in replica.jobs:
            waiting_for = why_waiting(replica, job)
            state = _state_of(replica, job, peers)
        exception = self.exception(job) if state == "killed" else None
        name, unreadable = self._name(replica, job)
        remark = waiting_for or unreadable
        stalls = self.stalls(replica, job) if job in replica.jobs else []
        return JobStatus(
            job,
            name,
            state,
            replica.version,
            peers,
            remark,
            exception,
            why_stalled(replica, job, stalls),
            tuple(stalls),
        )

    def _name(self, replica: Replica, job: JobId) -> tuple[str, str]:
        """The name of a job, and why it cannot be read: one that was handed in by other means than
        ours must not hide all others."""
        if job not in replica.job_digests:
            return "", ""
        try:
            return self._job(replica, job).name, ""
        except (OnyxError, msgspec.DecodeError) as error:
            return "", f"its manifest cannot be read: {error}"

    def _job(self, replica: Replica, job: JobId) -> Job:
        digest = self._require(replica, job)
        return parse_mapping(msgspec.json.decode(self.log.get_chunk(digest)))

    def _require(self, replica: Replica, job: JobId) -> str:
        """The digest of a job that exists."""
        digest = replica.job_digests.get(JobId(_named(job)))
        if digest is None:
            raise UserError(f"there is no job {job}: `onyx jobs` lists those that are known")
        return digest

    def _start(self) -> Replica:
        origin = self.log.origin()
        if origin.replica:
            return canonical.decode(origin.replica)
        return Replica(job_scheduler=self._parameters()["job-scheduler"])

    def _parameters(self) -> dict[str, str]:
        return dict(self.log.establish({"job-scheduler": self._job_scheduler}))


def _named(job: str) -> str:
    return path_name(job, "the id of a job")


def why_stalled(replica: Replica, job: JobId, found: Sequence[Stall]) -> str:
    """What keeps a job from advancing, of all that is reported of it; empty if nothing does."""
    root = cause(found, replica.tasks.get(job, ()))
    return "" if root is None else sentence(root, found, SystemClock().wall_ms())


def _state_of(replica: Replica, job: JobId, peers: int) -> JobState:
    """Of a job that has not ended."""
    if job in replica.suspended_jobs:
        return "suspended"
    if job in replica.draining_jobs:
        return "draining"
    return "running" if peers else "waiting"


_NOBODY: dict[Any, Any] = {}
