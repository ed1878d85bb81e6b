"""The inputs that take requests: to whom they are open, and who owns each of their partitions.

Every request is looked at here, whichever wire it came by, and again whenever it goes to another
job than before. A worker that hands a part of a request over is trusted for its certificate. Where
workers have none, nobody can tell a worker from a stranger, so the token goes with the part, and
the owner of the partition looks at it once more.

Rejected: a secret that all workers share in place of that. It would be one more thing to keep, and
whoever had it would be let in everywhere.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from onyx.base.seams import Clock
from onyx.ids import GroupId, JobId, TaskName
from onyx.log.interface import LogReader
from onyx.model.job import CatalogEntry, Job
from onyx.model.parsing.mapping import stored_job
from onyx.model.plugins import takes_requests
from onyx.model.report import listed
from onyx.plugins.options import check_options
from onyx.plugins.requests.options import RequestsOptions
from onyx.replica.jobs import has_completed, in_place_of, jobs_called, rank_of, runs
from onyx.replica.scheduling.explain import why_waiting
from onyx.replica.state import JobRun, Replica
from onyx.requests.request import Answer, Caller, Status, not_final
from onyx.requests.tokens import Tokens
from onyx.rights import rights_of
from onyx.settings import Settings
from onyx.task.channels.wiring import sites_of

JOBS_MAX = 256
"""Manifests that are remembered."""
INPUTS_MAX = 1_024
"""Inputs whose tokens are remembered."""
STOPPED_RETRY_S = 1.0
STARTING_RETRY_S = 0.1
LOOK_INTERVAL_S = 0.2
"""Between two looks at the log for a job that nobody knows here: strangers may ask."""
HTTP = "http"
WHAT = "the input"


class PartitionOwner(msgspec.Struct, frozen=True):
    """The worker that owns a partition."""

    group: GroupId
    address: str


class RequestInput(msgspec.Struct, frozen=True):
    """An input of a running job that takes requests."""

    job: JobId
    entry: CatalogEntry
    ack_returns: tuple[str, ...] = ()
    """What functions of the job may give back."""
    follows: bool = False
    """Whether the job has come in the place of another one."""
    job_name: str = ""

    @property
    def task(self) -> TaskName:
        """Its name."""
        return TaskName(self.entry.name)

    @property
    def partition_key(self) -> str | None:
        """Segments with the same value of it go to the same partition."""
        return self.entry.options.get("partitionKey")


class InputAccess:
    """Finds inputs for those who may use them."""

    def __init__(
        self,
        inputs: RequestInputs,
        tokens: InputTokens,
        background: Callable[[Callable[[], Any]], Future[Any]],
    ) -> None:
        self._inputs = inputs
        self._tokens = tokens
        self._background = background

    def opens(self, found: RequestInput, caller: Caller) -> bool:
        """Whether an input is open to a caller. From any thread."""
        if caller.worker:
            return True
        if caller.http and found.entry.plugin != HTTP:
            return False
        tokens = self._tokens.of(found)
        return not tokens.wanted or bool(caller.token and tokens.opened_by(caller.token))

    async def find(
        self, job: str, task: str, is_new: bool, caller: Caller
    ) -> RequestInput | Answer:
        """The input that a caller names, or the answer that there is none for it. `is_new`: no
        journal can have the request."""
        found: RequestInput | Answer = self._inputs.known(job, task) or await self._blocking(
            lambda: self._inputs.find(job, task, is_new)
        )
        if caller.worker:
            return found
        if not await self._may_know(job, found, caller):
            unheard_of: Answer = await self._blocking(lambda: self._inputs.unheard_of(job, is_new))
            return unheard_of
        if isinstance(found, Answer):
            return found
        if caller.http and found.entry.plugin != HTTP:
            plugin = found.entry.plugin
            what = f"input {found.task!r} is not served over HTTP: its plugin is {plugin!r}"
            unserved = Answer(Status.UNKNOWN, what)
            return not_final(unserved) if not is_new and found.follows else unserved
        return self._tokens.of(found).refusal(caller.token, WHAT) or found

    async def _may_know(self, job: str, found: RequestInput | Answer, caller: Caller) -> bool:
        """Whether the caller may learn of what was found: that a job is there, what it is called
        and which inputs it has. It may where an input of the job is open to it. A caller who names
        the job in full, by id or name, and an input that it could use with a token, may as well:
        it is answered that a token is wanted."""
        if isinstance(found, RequestInput) and (not caller.http or found.entry.plugin == HTTP):
            return job in (found.job, found.job_name) or self.opens(found, caller)
        inputs = await self._blocking(lambda: self._inputs.of(job))
        return inputs is None or any(self.opens(each, caller) for each in inputs)

    async def _blocking(self, ask: Callable[[], Any]) -> Any:
        return await asyncio.wrap_future(self._background(ask))


class InputTokens:
    """The tokens of all inputs, as one worker has them. Safe from any thread."""

    def __init__(
        self, settings: Settings, clock: Clock, env: Mapping[str, str] = os.environ
    ) -> None:
        self._rights = rights_of(settings)
        self._data_dir = settings.data_dir
        self._clock = clock
        self._env = env
        self._found: OrderedDict[tuple[str, str], Tokens] = OrderedDict()

    def of(self, found: RequestInput) -> Tokens:
        """The tokens of an input. Those whose options are wrong are open to nobody."""
        key = (found.job, found.task)
        tokens = self._found.get(key)
        if tokens is None:
            options, problems = check_options(found.entry.options, RequestsOptions)
            if options is None or problems:
                return Tokens(self._clock, value="")
            tokens = options.tokens(self._rights, self._data_dir, self._clock, self._env)
            self._found[key] = tokens
            if len(self._found) > INPUTS_MAX:
                self._found.popitem(last=False)
        return tokens


class RequestInputs:
    """What a replica and the manifests say. `find` may block on ZooKeeper; from one thread."""

    def __init__(self, replica: Callable[[], Replica], log: LogReader, clock: Clock) -> None:
        self._replica = replica
        self._log = log
        self._clock = clock
        self._next_look_s = -math.inf
        """When the log may be asked again whether it has more."""
        self._behind = False
        """Whether it had more."""
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._found: tuple[object, dict[tuple[str, str], RequestInput]] = ((), {})
        """Inputs as clients name them, as long as exactly these jobs run."""
        self._owners: dict[tuple[JobId, TaskName], tuple[JobRun, tuple[PartitionOwner, ...]]] = {}
        """Workers that own partitions, in the order of slots, as long as the run is the same."""

    def known(self, job: str, task: str) -> RequestInput | None:
        """The input, if nothing has to be read from ZooKeeper to find it; None: ask `find`. From
        any thread."""
        jobs, inputs = self._found
        if jobs is self._replica().jobs and (job, task) in inputs:
            return inputs[job, task]
        digest = self._replica().digest_of(JobId(job))
        found = self._jobs.get(digest or "")
        if found is None or JobId(job) not in self._replica().jobs:
            return None
        input_ = self._input(JobId(job), found, task)
        return input_ if isinstance(input_, RequestInput) else None

    def find(self, job: str, task: str, is_new: bool) -> RequestInput | Answer:
        """The input, or the answer that there is none. Of a job that has ended, the input of the
        job that upgrades it.

        Args:
            is_new: whether no journal can have the request. The answer to another one is not final
                while a journal may have it.
        """
        replica = self._replica()
        named = jobs_called(replica, job, partial(self._name, replica))
        running = [*filter(None, map(partial(in_place_of, replica), named))]
        if not named:
            return self.unheard_of(job, is_new)
        if not running:
            ended = Answer(Status.UNKNOWN, self._why_ended(replica, named[0]), STOPPED_RETRY_S)
            return ended if is_new else not_final(ended)
        if len(running) > 1:
            reason = f"{job} may be any of {len(running)} jobs: give the id: {listed(running)}"
            several = Answer(Status.INVALID, reason, STOPPED_RETRY_S)
            return several if is_new else not_final(several)
        manifest = self._manifest(replica, running[0])
        if manifest is None:
            return Answer(Status.UNKNOWN, f"there is no job {job!r}")
        input_ = self._input(running[0], manifest, task)
        if isinstance(input_, RequestInput):
            self._remember(replica, job, task, input_)
            return input_
        # A job of before may have had the input, with a journal.
        is_new = is_new or replica.upgrades(running[0]) is None
        return input_ if is_new else not_final(input_)

    def of(self, job: str) -> list[RequestInput] | None:
        """The inputs of all jobs that a client may mean, of those that have ended too; None: there
        is no such job."""
        replica = self._replica()
        found = []
        named = jobs_called(replica, job, partial(self._name, replica))
        for each in named:
            manifest = self._manifest(replica, each)
            if manifest is not None:
                found += [self._input_of(each, manifest, entry) for entry in _taking(manifest)]
        return found if named else None

    def unheard_of(self, job: str, is_new: bool) -> Answer:
        """The answer when no job is named so, as far as this worker has read, or when whoever asks
        may not know of it."""
        replica = self._replica()
        now_s, reason = self._clock.monotonic_s(), f"there is no job {job!r}"
        may_look = now_s >= self._next_look_s
        if may_look:
            self._next_look_s = now_s + LOOK_INTERVAL_S
            self._behind = bool(self._log.read(replica.version, 1))
        if self._behind or not (may_look or is_new):
            return Answer(Status.UNAVAILABLE, f"{reason} yet", STARTING_RETRY_S)
        return Answer(Status.UNKNOWN, reason)

    def stopped(self, found: RequestInput) -> Answer | None:
        """Why the input takes nothing until somebody does something; None: it does."""
        if self._replica().run(found.job).suspended:
            return Answer(Status.UNAVAILABLE, f"job {found.job} is suspended", STOPPED_RETRY_S)
        return None

    def ended(self, found: RequestInput) -> bool:
        """Whether the job has ended: `find` gives the one that has taken its place."""
        return not runs(self._replica(), found.job)

    def drains(self, found: RequestInput) -> Answer | None:
        """Why the job takes nothing new, and processes what it has; None: it does not drain."""
        if not self._replica().run(found.job).draining:
            return None
        return Answer(Status.UNAVAILABLE, f"job {found.job} drains: it takes nothing new")

    def waits(self, found: RequestInput) -> Answer | None:
        """Why the input takes nothing for a moment; None: it does."""
        replica, job = self._replica(), found.job
        if not replica.run(job).allocation.get(found.task):
            why = why_waiting(replica, job) or "no peer works on it now"
            return Answer(Status.UNAVAILABLE, f"job {job} waits: {why}", STOPPED_RETRY_S)
        if found.task not in replica.partitions(job):
            return Answer(Status.UNAVAILABLE, f"job {job} is starting", STARTING_RETRY_S)
        # One that drained before it began has none.
        return None if self.partitions(found) else self.drains(found)

    def partitions(self, found: RequestInput) -> int:
        """How many the input has, when it does not wait."""
        return self._replica().partitions(found.job)[found.task].count

    def versions(self, found: RequestInput) -> list[JobId]:
        """The job of an input and those that it upgraded, the newest first."""
        replica, versions = self._replica(), [found.job]
        while (old := replica.upgrades(versions[-1])) is not None and old not in versions:
            versions.append(old)
        return versions

    def owner(self, found: RequestInput, partition: int) -> PartitionOwner:
        """The worker that owns a partition, when the input does not wait."""
        replica = self._replica()
        run, key = replica.run(found.job), (found.job, found.task)
        of_run, owners = self._owners.get(key, (None, ()))
        if of_run is not run:
            sites = sites_of(replica, *key)
            addresses = [replica.peer_sites[each.peer].get("address", "") for each in sites]
            owners = tuple(map(PartitionOwner, (each.group for each in sites), map(str, addresses)))
            if len(self._owners) >= JOBS_MAX:
                self._owners = {}
            self._owners[key] = run, owners
        return owners[rank_of(partition, self.partitions(found), len(owners))]

    def _remember(self, replica: Replica, job: str, task: str, found: RequestInput) -> None:
        jobs, inputs = self._found
        if jobs is not replica.jobs or len(inputs) >= JOBS_MAX:
            inputs = {}
            self._found = (replica.jobs, inputs)
        inputs[job, task] = found

    def _why_ended(self, replica: Replica, job: JobId) -> str:
        """What is said of a request for a job that has ended."""
        if has_completed(replica, job):
            return f"job {job} has completed: all that was in its journals is processed"
        return (
            f"job {job} was killed or has failed: what is in its journals is processed by the job "
            "that upgrades it (onyx submit --upgrade)"
        )

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

    def _input_of(self, job_id: JobId, job: Job, entry: CatalogEntry) -> RequestInput:
        follows = self._replica().upgrades(job_id) is not None
        return RequestInput(job_id, entry, tuple(sorted(job.ack_returns)), follows, job.name)

    def _input(self, job_id: JobId, job: Job, task: str) -> RequestInput | Answer:
        taking = _taking(job)
        for entry in taking:
            if entry.name == task or (not task and len(taking) == 1):
                return self._input_of(job_id, job, entry)
        names = ", ".join(each.name for each in taking) or "none"
        return Answer(
            Status.UNKNOWN,
            f"job {job_id} has no input {task!r} that takes requests; those that do: {names}",
        )


def _taking(job: Job) -> list[CatalogEntry]:
    return [each for each in job.catalog if takes_requests(each.type, each.plugin)]
