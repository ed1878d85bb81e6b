"""Follows the log of one cluster for all of its OnyxJobs, and writes to it.

One subscription a cluster, however many jobs: the log folds into one replica here as at every peer.
All that blocks (connecting, reading, appending) happens on a few threads of this cluster's own, so
that a ZooKeeper that cannot be reached stalls nobody else. Methods belong to the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from onyx.client import failure_text
from onyx.client.client import Client
from onyx.deaths import Death, concerning, is_recent
from onyx.errors import LogReplaced, OnyxError, Unavailable
from onyx.ids import JobId, Position
from onyx.log.interface import ChunkGone, ClientLog, Origin
from onyx.model.job import Job
from onyx.replica.command import Command
from onyx.replica.entry import Entry
from onyx.replica.jobs import input_partitions
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.stalls import cause, status_sentence
from onyx.upgrade.plan import upgrading
from onyx_operator.logs.frontiers import Frontiers
from onyx_operator.logs.jobs import (
    by_owner,
    changed_jobs,
    jobs_that_wait,
    log_job,
    stage_of,
)
from onyx_operator.logs.owners import Owner
from onyx_operator.logs.state import Log, Stage, Trouble, Upgrade
from onyx_operator.logs.upgrades import upgrade
from onyx_operator.logs.worker_checks import Checks
from onyx_operator.work_queue import Key

Connect = Callable[[Settings], ClientLog]
Changed = Callable[[Collection[JobId] | None], None]
"""Called with the jobs that have changed; None: all, because the log was found or lost."""
T = TypeVar("T")

CONNECTING = "Connecting"
"""Reason of the trouble of a log that was never tried yet."""
CHECK_INTERVAL_S = 5.0
"""Period at which it is asked whether ZooKeeper still answers."""
REOPEN_S = 5.0
"""Wait before a log that could not be opened is tried again."""
ARRIVAL_TIMEOUT_S = 20.0
"""Longest wait for our own entry to come back by the subscription."""
WAITING_INTERVAL_S = 5.0
"""Jobs that wait for peers are looked at again at most once in this time."""
PROGRESS_DOCUMENTS_MAX = 500
"""Frontiers that are read at a time, of all jobs together; the next time goes on from there."""
FAILURES_MAX = 2_000
"""Failures of killed jobs that are remembered."""

logger = logging.getLogger(__name__)


class LogView:
    """A log as controllers see it. `connect` opens a log; `changed` is called on the event loop."""

    def __init__(
        self,
        settings: Settings,
        connect: Connect,
        changed: Changed,
        threads_max: int,
        mark: str = "",
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._mark = mark
        self._owned: tuple[Any, Mapping[Key, Mapping[str, list[JobId]]]] = (None, {})
        self._threads = ThreadPoolExecutor(threads_max, "onyx-log-view")
        self._client: Client | None = None
        self._following = contextlib.ExitStack()
        self._newest = self._replica = Replica()
        self._closed = False
        self._told = True
        self._waiting_since_s: float | None = None
        self._arrivals: list[tuple[Position, asyncio.Future[None]]] = []
        self._failures: dict[JobId, str] = {}
        self._stalled: dict[JobId, str] = {}
        self._moved_ms: dict[JobId, int] = {}
        """When a job had completed more than before."""
        self.deaths: tuple[Death, ...] = ()
        """Worker processes that have died in the last minutes."""
        self.frontiers = Frontiers()
        self._checks = Checks()
        self._next_job = 0
        self._poke = asyncio.Event()
        self.trouble: Trouble | None = Trouble(CONNECTING, f"connecting to {self._where()}")
        self._task = asyncio.create_task(self._follow(), name="onyx-log-view")

    def seen(self, jobs: Iterable[JobId], owner: Owner) -> Log | Trouble:
        """What is known of some jobs, and of whoever had their owner's name, or why nothing is."""
        if self.trouble is not None:
            return self.trouble
        found = {
            job: log_job(
                self._replica,
                job,
                self._failures.get(job, ""),
                self.frontiers.completed(job),
                self._stalled.get(job, ""),
                concerning(self.deaths, job, _now_ms()),
                self._moved_ms.get(job, 0),
            )
            for job in jobs
        }
        others = self.owned(owner.key).items()
        orphans = tuple(job for uid, jobs in others if uid != owner.uid for job in jobs)
        return Log(self._replica.version, found, orphans)

    def owned(self, key: Key) -> Mapping[str, Collection[JobId]]:
        """The jobs that have not ended of an object called so, and of others before it that were
        called so, by its uid."""
        return self._by_owner().get(key, {})

    def owners(self) -> list[Owner]:
        """Every object of this API server that has a job which has not ended."""
        found = self._by_owner().items()
        return [
            Owner(self._mark, key.namespace, key.name, uid) for key, jobs in found for uid in jobs
        ]

    def _by_owner(self) -> Mapping[Key, Mapping[str, list[JobId]]]:
        jobs = self._replica.jobs
        if self._owned[0] is not jobs:
            self._owned = jobs, by_owner(self._replica, self._mark)
        return self._owned[1]

    def stage_of(self, job: JobId) -> Stage:
        """The stage of a job now, without the rest of `seen`."""
        return stage_of(self._replica, job)

    async def upgrade(self, job: Job, old: JobId) -> Upgrade:
        """Whether a job can upgrade the job `old`.

        Raises:
            Unavailable: the log cannot be reached.
        """
        client = self._opened()
        found = await self._ask(upgrade, client.log, self._replica, job, old)
        if found.refusal or found.waits or old not in self._replica.jobs:
            return found
        assert found.upgrades is not None
        wanted = upgrading(job, found.upgrades)
        entry = self._checks.prepared(old, wanted)
        if entry is None:
            entry = await self._ask(client.prepare, JobId("new"), wanted)
            self._checks.remember(old, wanted, entry)
        now_s = self._loop.time()
        found, question = self._checks.judge(found, old, entry, self._replica, now_s)
        if question is not None:
            try:
                await self.append(question)
            except ChunkGone:
                self._checks.forget(old)
                raise
        return found

    async def learn(self, job: JobId) -> None:
        """Find out what killed a job, and how far one that has ended came, if that is not known.

        Raises:
            Unavailable: the log cannot be reached.
        """
        if self.trouble is not None:
            return
        if job in self._replica.killed_jobs and job not in self._failures:
            client = self._opened()
            report = await self._ask(client.exception, job)
            while len(self._failures) >= FAILURES_MAX:
                del self._failures[next(iter(self._failures))]
            self._failures[job] = _told(report)
        if job in self._replica.completed_jobs and self.frontiers.is_open(job):
            await self._read_frontiers(job)
            self.frontiers.close(job)

    async def learn_progress(self) -> None:
        """Look how far the jobs with peers are, and what keeps those that do not advance: so many
        documents at a time, in turn."""
        jobs = [job for job in self._replica.jobs if self._replica.run(job).allocation]
        for job in self._stalled.keys() - set(jobs):
            del self._stalled[job]
        for job in self._moved_ms.keys() - set(self._replica.jobs):
            del self._moved_ms[job]
        if self.trouble is None and await self._read_deaths():
            self._changed(self._replica.jobs)
        left = PROGRESS_DOCUMENTS_MAX
        for _ in range(len(jobs)):
            if self.trouble is not None or left <= 0:
                return
            self._next_job = (self._next_job + 1) % len(jobs)
            job = jobs[self._next_job]
            left -= 1 + len(input_partitions(self._replica, job))
            if await self._read_frontiers(job) | await self._read_stalls(job):
                self._changed([job])

    async def submit(self, job_id: JobId, job: Job, owner: str) -> None:
        """Write the submission of a job and wait until it is seen in the log.

        Raises:
            Unavailable: it may have been written or not; a repeat does no harm.
        """
        client = self._opened()
        await self._arrived(await self._ask(client.hand_in, job_id, job, owner))

    async def append(self, command: Command) -> None:
        """Write a command and wait until it is seen in the log.

        Raises:
            Unavailable: it may have been written or not; a repeat does no harm.
        """
        await self._arrived(await self._ask(self._opened().log.append, command))

    async def close(self) -> None:
        """Stop following; the session ends in the background."""
        if not self._closed:
            self._closed = True
            self._threads.submit(self._close_log)
            self._threads.shutdown(wait=False)
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _follow(self) -> None:
        while not self._closed:
            try:
                await self._in_thread(self._open)
                await self._stay()
            except OnyxError as error:
                self._set_trouble(Trouble("LogUnreachable", str(error)))
            except Exception as error:
                logger.exception("following the log at %s failed", self._where())
                self._set_trouble(Trouble("LogUnreachable", f"{type(error).__name__}: {error}"))
            with contextlib.suppress(Unavailable):
                await self._in_thread(self._close_log)
            await asyncio.sleep(REOPEN_S)

    async def _stay(self) -> None:
        """While the session can be used, with breaks; another error ends it, such as LogReplaced:
        what this client knew is of a log that is gone."""
        assert self._client is not None
        while True:
            try:
                await self._in_thread(self._client.log.origin)
                self._set_trouble(None)
            except Unavailable as error:
                self._set_trouble(Trouble("LogUnreachable", str(error)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._poke.wait(), CHECK_INTERVAL_S)
            self._poke.clear()

    def _open(self) -> None:
        """On a thread: connect, read all there is, and follow from there."""
        client = Client(self._connect(self._settings), self._settings.job_scheduler)
        self._client = client
        self._newest = client.replica()
        self._following.enter_context(client.follow(self._deliver, after=self._newest))
        if self._closed:
            self._close_log()
        else:
            self._loop.call_soon_threadsafe(self._publish)

    def _close_log(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            self._following.close()
            client.close()

    def _deliver(self, item: Entry | Origin, replica: Replica) -> None:
        """On the log's thread: the next entry."""
        self._newest = replica
        if isinstance(item, Entry):
            self._checks.hear(item, replica)
        if self._told:
            self._told = False
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._publish)

    def _publish(self) -> None:
        """Take over the newest replica, and report the jobs that have changed."""
        self._told = True
        old, self._replica = self._replica, self._newest
        changed = changed_jobs(old, self._replica)
        changed |= set(self._checks.answered())
        if changed:
            self._changed(changed)
        new = self._replica
        moved = (job for job in changed if old.run(job).allocation is not new.run(job).allocation)
        if old.peers != new.peers or any(moved):
            self._look_at_waiting()
        position = self._replica.version
        for at, arrived in self._arrivals:
            if at <= position and not arrived.done():
                arrived.set_result(None)
        self._arrivals = [each for each in self._arrivals if each[0] > position]

    def _look_at_waiting(self) -> None:
        if self._waiting_since_s is None:
            self._waiting_since_s = self._loop.time()
            self._loop.call_later(WAITING_INTERVAL_S, self._tell_waiting)

    def _tell_waiting(self) -> None:
        self._waiting_since_s = None
        self._changed(list(jobs_that_wait(self._replica)))

    def _set_trouble(self, trouble: Trouble | None) -> None:
        if (trouble is None) != (self.trouble is None):
            logger.info("the log at %s is %s", self._where(), "lost" if trouble else "found")
            self.trouble = trouble
            self._changed(None)
        self.trouble = trouble

    def _opened(self) -> Client:
        if self._client is None or self.trouble is not None:
            raise Unavailable(self.trouble.message if self.trouble else "the log is closed")
        return self._client

    async def _arrived(self, position: Position) -> None:
        if self._replica.version >= position:
            return
        arrived: asyncio.Future[None] = self._loop.create_future()
        self._arrivals.append((position, arrived))
        try:
            await asyncio.wait_for(arrived, ARRIVAL_TIMEOUT_S)
        except TimeoutError as error:
            raise Unavailable(f"entry {position} of {self._where()} does not arrive") from error

    async def _ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """On behalf of a job, whose fault it is not that the log is another one."""
        try:
            return await self._in_thread(function, *arguments)
        except LogReplaced as error:
            self._poke.set()
            raise Unavailable(str(error)) from error
        except Unavailable:
            self._poke.set()
            raise

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise Unavailable("the log is closed")
        return await self._loop.run_in_executor(self._threads, function, *arguments)

    async def _read_frontiers(self, job: JobId) -> bool:
        client = self._opened()
        partitions = input_partitions(self._replica, job)
        before = self.frontiers.completed(job) or 0
        changed = await self._ask(self.frontiers.read, client.log, job, partitions)
        if (self.frontiers.completed(job) or 0) > before:
            self._moved_ms[job] = _now_ms()
        return changed

    async def _read_deaths(self) -> bool:
        """Whether there are others than before, of the last minutes."""
        now_ms = _now_ms()
        found = await self._ask(self._opened().deaths)
        before, self.deaths = self.deaths, tuple(each for each in found if is_recent(each, now_ms))
        return before != self.deaths

    async def _read_stalls(self, job: JobId) -> bool:
        """Whether it advances otherwise than before."""
        replica = self._replica
        stalls = await self._ask(self._opened().stalls, replica, job)
        before = self._stalled.pop(job, "")
        if not stalls:
            return bool(before)
        root = cause(stalls, replica.tasks_of(job))
        found = "" if root is None else status_sentence(root, stalls)
        if found:
            self._stalled[job] = found
        return found != before

    def _where(self) -> str:
        return f"{self._settings.zookeeper.address}, tenancy {self._settings.tenancy_id}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _told(report: dict[str, Any] | None) -> str:
    """What a task stored before it killed its job."""
    return "" if report is None else failure_text.whole(report)
