"""The inputs that take requests, by job and task, with the owner of each partition."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from onyx.ids import GroupId, JobId, TaskName
from onyx.log.interface import LogReader
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.mapping import stored_job
from onyx.model.plugins import takes_requests
from onyx.replica.jobs import has_completed
from onyx.replica.scheduling.explain import why_waiting
from onyx.replica.state import Replica
from onyx.requests.request import Answer, Status
from onyx.task.channels.wiring import sites_of

JOBS_MAX = 256
"""Manifests that are remembered."""
STOPPED_RETRY_S = 1.0
STARTING_RETRY_S = 0.1


class Owner(msgspec.Struct, frozen=True):
    """The worker that owns a partition."""

    group: GroupId
    address: str


class RequestInput(msgspec.Struct, frozen=True):
    """An input of a running job that takes requests."""

    job: JobId
    entry: CatalogEntry

    @property
    def task(self) -> TaskName:
        """Its name."""
        return TaskName(self.entry.name)

    @property
    def partition_key(self) -> str | None:
        """Segments with the same value of it go to the same partition."""
        return self.entry.options.get("partitionKey")


class RequestInputs:
    """What a replica and the manifests say. `find` may block on ZooKeeper; from one thread."""

    def __init__(self, replica: Callable[[], Replica], log: LogReader) -> None:
        self._replica = replica
        self._log = log
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._found: tuple[object, dict[tuple[str, str], RequestInput]] = ((), {})
        """Inputs as clients name them, as long as exactly these jobs run."""

    def known(self, job: str, task: str) -> RequestInput | None:
        """The input, if nothing has to be read from ZooKeeper to find it; None: ask `find`."""
        jobs, inputs = self._found
        if jobs is self._replica().jobs and (job, task) in inputs:
            return inputs[job, task]
        digest = self._replica().digest_of(JobId(job))
        found = self._jobs.get(digest or "")
        if found is None or JobId(job) not in self._replica().jobs:
            return None
        input_ = self._input(JobId(job), found, task)
        return input_ if isinstance(input_, RequestInput) else None

    def find(self, job: str, task: str) -> RequestInput | Answer:
        """The input, or the answer that there is none."""
        replica = self._replica()
        found = self._job_id(replica, job)
        if isinstance(found, Answer):
            return found
        manifest = self._manifest(replica, found)
        if manifest is None:
            return Answer(Status.UNKNOWN, f"there is no job {job!r}")
        input_ = self._input(found, manifest, task)
        if isinstance(input_, RequestInput):
            self._remember(replica, job, task, input_)
        return input_

    def _remember(self, replica: Replica, job: str, task: str, found: RequestInput) -> None:
        jobs, inputs = self._found
        if jobs is not replica.jobs or len(inputs) >= JOBS_MAX:
            inputs = {}
            self._found = (replica.jobs, inputs)
        inputs[job, task] = found

    def stopped(self, found: RequestInput) -> Answer | None:
        """Why the input takes nothing until somebody does something; None: it does."""
        replica, job = self._replica(), found.job
        completed = has_completed(replica, job)
        if completed is not None:
            how = "has completed" if completed else "was killed"
            return Answer(Status.UNKNOWN, f"job {job} {how}")
        run = replica.run(job)
        if run.suspended:
            return Answer(Status.UNAVAILABLE, f"job {job} is suspended", STOPPED_RETRY_S)
        if run.draining:
            return Answer(Status.UNAVAILABLE, f"job {job} drains: it takes nothing new")
        return None

    def waits(self, found: RequestInput) -> Answer | None:
        """Why the input takes nothing for a moment; None: it does."""
        replica, job = self._replica(), found.job
        if not replica.run(job).allocation.get(found.task):
            why = why_waiting(replica, job) or "no peer works on it now"
            return Answer(Status.UNAVAILABLE, f"job {job} waits: {why}", STOPPED_RETRY_S)
        if found.task not in replica.partitions(job):
            return Answer(Status.UNAVAILABLE, f"job {job} is starting", STARTING_RETRY_S)
        return None

    def partitions(self, found: RequestInput) -> int:
        """How many the input has, when it does not wait."""
        return self._replica().partitions(found.job)[found.task].count

    def versions(self, found: RequestInput) -> list[JobId]:
        """The job of an input and those that it upgraded, the newest first."""
        replica, versions = self._replica(), [found.job]
        while (old := replica.upgrades(versions[-1])) is not None and old not in versions:
            versions.append(old)
        return versions

    def owner(self, found: RequestInput, partition: int) -> Owner:
        """The worker that owns a partition, when the input does not wait."""
        replica = self._replica()
        sites = sites_of(replica, found.job, found.task)
        site = sites[partition % len(sites)]
        return Owner(site.group, str(replica.peer_sites[site.peer].get("address", "")))

    def _job_id(self, replica: Replica, job: str) -> JobId | Answer:
        if JobId(job) in replica.records or has_completed(replica, JobId(job)) is not None:
            return JobId(job)
        named = [each for each in replica.jobs if self._name(replica, each) == job]
        if len(named) == 1:
            return named[0]
        if named:
            ids = ", ".join(named)
            return Answer(Status.INVALID, f"several jobs are named {job!r}: give the id of {ids}")
        return Answer(Status.UNKNOWN, f"there is no job {job!r}")

    def _name(self, replica: Replica, job: JobId) -> str:
        manifest = self._manifest(replica, job)
        return "" if manifest is None else manifest.name

    def _manifest(self, replica: Replica, job: JobId) -> Job | None:
        digest = replica.digest_of(job)
        if digest is None:
            return None
        if digest not in self._jobs:
            self._jobs[digest] = stored_job(self._log.get_chunk(digest), job)
            if len(self._jobs) > JOBS_MAX:
                self._jobs.popitem(last=False)
        return self._jobs[digest]

    def _input(self, job_id: JobId, job: Job, task: str) -> RequestInput | Answer:
        taking = [each for each in job.catalog if takes_requests(each.type, each.plugin)]
        for entry in taking:
            if entry.name == task or (not task and len(taking) == 1):
                return RequestInput(job_id, entry)
        names = ", ".join(each.name for each in taking) or "none"
        return Answer(
            Status.UNKNOWN,
            f"job {job_id} has no input {task!r} that takes requests; those that do: {names}",
        )
