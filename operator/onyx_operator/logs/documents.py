"""What the replica does not say of jobs, as read last: failures, progress, stalls, deaths.

How far a job is, is the sum of the frontiers of its partitions, read from beside the log. The
frontier is what the engine itself goes by after a crash, so it is right, never falls, and is there
when the workers are gone. Rejected: asking the workers, as for their lag (`lags`), which know
nothing of what others did that are gone.

Cheap by construction: a job has few partitions; of one with many, `READ_MAX` are read at a time and
the others count as they were, which is a lower bound all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from onyx.client import failure_text
from onyx.ids import JobId
from onyx.log import documents
from onyx.log.documents import completed_position
from onyx.log.interface import ClientLog
from onyx.replica.jobs import input_partitions
from onyx.reports.deaths import Death, concerning, is_recent
from onyx.reports.stalls import cause, status_sentence
from onyx_operator.logs.follower import Follower
from onyx_operator.logs.jobs import log_job
from onyx_operator.logs.state import LogJob

PROGRESS_DOCUMENTS_MAX = 500
"""Frontiers that are read at a time, of all jobs together; the next time goes on from there."""
FAILURES_MAX = 2_000
"""Failures of killed jobs that are remembered."""
READ_MAX = 128
"""Documents read at a time."""
JOBS_MAX = 5_000
"""Jobs that are remembered."""


class JobDocuments:
    """What was read beside one log. Belongs to the event loop."""

    def __init__(self, log: Follower, changed: Callable[[Collection[JobId]], None]) -> None:
        """`changed` is called with jobs of which something new was read."""
        self._log = log
        self._changed = changed
        self._failures: dict[JobId, str] = {}
        self._stalled: dict[JobId, str] = {}
        self._moved_ms: dict[JobId, int] = {}
        """When a job had completed more than before."""
        self.deaths: tuple[Death, ...] = ()
        """Worker processes that have died in the last minutes."""
        self._frontiers = Frontiers()
        self._next_job = 0

    def shown(self, job: JobId) -> LogJob:
        """All that is known of a job, by the replica and beside it."""
        return log_job(
            self._log.replica,
            job,
            self._failures.get(job, ""),
            self._frontiers.completed(job),
            self._stalled.get(job, ""),
            concerning(self.deaths, job, _now_ms()),
            self._moved_ms.get(job, 0),
        )

    async def job(self, job: JobId) -> None:
        """Find out what killed a job, and how far one that has ended came, if that is not known.

        Raises:
            Unavailable: the log cannot be reached.
        """
        if self._log.trouble is not None:
            return
        if job in self._log.replica.killed_jobs and job not in self._failures:
            client = self._log.opened()
            report = await self._log.ask(client.exception, job)
            while len(self._failures) >= FAILURES_MAX:
                del self._failures[next(iter(self._failures))]
            self._failures[job] = _told(report)
        if job in self._log.replica.completed_jobs and self._frontiers.is_open(job):
            await self._read_frontiers(job)
            self._frontiers.close(job)

    async def progress(self) -> None:
        """Look how far the jobs with peers are, and what keeps those that do not advance: so many
        documents at a time, in turn."""
        jobs = [job for job in self._log.replica.jobs if self._log.replica.run(job).allocation]
        for job in self._stalled.keys() - set(jobs):
            del self._stalled[job]
        for job in self._moved_ms.keys() - set(self._log.replica.jobs):
            del self._moved_ms[job]
        if self._log.trouble is None and await self._read_deaths():
            self._changed(self._log.replica.jobs)
        left = PROGRESS_DOCUMENTS_MAX
        for _ in range(len(jobs)):
            if self._log.trouble is not None or left <= 0:
                return
            self._next_job = (self._next_job + 1) % len(jobs)
            job = jobs[self._next_job]
            left -= 1 + len(input_partitions(self._log.replica, job))
            if await self._read_frontiers(job) | await self._read_stalls(job):
                self._changed([job])

    async def _read_frontiers(self, job: JobId) -> bool:
        client = self._log.opened()
        partitions = input_partitions(self._log.replica, job)
        before = self._frontiers.completed(job) or 0
        changed = await self._log.ask(self._frontiers.read, client.log, job, partitions)
        if (self._frontiers.completed(job) or 0) > before:
            self._moved_ms[job] = _now_ms()
        return changed

    async def _read_deaths(self) -> bool:
        """Whether there are others than before, of the last minutes."""
        now_ms = _now_ms()
        found = await self._log.ask(self._log.opened().deaths)
        before, self.deaths = self.deaths, tuple(each for each in found if is_recent(each, now_ms))
        return before != self.deaths

    async def _read_stalls(self, job: JobId) -> bool:
        """Whether it advances otherwise than before."""
        replica = self._log.replica
        stalls = await self._log.ask(self._log.opened().stalls, replica, job)
        before = self._stalled.pop(job, "")
        if not stalls:
            return bool(before)
        root = cause(stalls, replica.tasks_of(job))
        found = "" if root is None else status_sentence(root, stalls)
        if found:
            self._stalled[job] = found
        return found != before


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _told(report: dict[str, Any] | None) -> str:
    """What a task stored before it killed its job."""
    return "" if report is None else failure_text.whole(report)


class Frontiers:
    """The frontiers of the jobs of one cluster, as read last."""

    def __init__(self) -> None:
        self._positions: dict[JobId, dict[int, int]] = {}
        self._next: dict[JobId, int] = {}
        self._closed: dict[JobId, None] = {}

    def completed(self, job: JobId) -> int | None:
        """Segments of the job's inputs that are completely processed; None: not known."""
        positions = self._positions.get(job)
        return None if positions is None else sum(positions.values())

    def is_open(self, job: JobId) -> bool:
        """Whether more may be found of a job than was read."""
        return job not in self._closed

    def close(self, job: JobId) -> None:
        """The job has ended, and what it left has been read."""
        self._closed[job] = None
        self._next.pop(job, None)
        while len(self._closed) > JOBS_MAX:
            del self._closed[next(iter(self._closed))]

    def read(self, log: ClientLog, job: JobId, partitions: Sequence[int]) -> bool:
        """Read the next of a job's partitions; True when something has changed. Blocks.

        `partitions`: of the inputs; with none those with a frontier are looked up.

        Raises:
            Unavailable: the log cannot be reached.
        """
        names = (
            [str(number) for number in self._due(job, partitions)]
            if partitions
            else list(log.list_documents(documents.frontiers(job)))[:READ_MAX]
        )
        found: dict[int, int] = {}
        for name in names:
            position = completed_position(log, job, int(name))
            if position is not None:
                found[int(name)] = position
        before = self.completed(job)
        while job not in self._positions and len(self._positions) >= JOBS_MAX:
            del self._positions[next(iter(self._positions))]
        self._positions.setdefault(job, {}).update(found)
        return self.completed(job) != before

    def _due(self, job: JobId, partitions: Sequence[int]) -> list[int]:
        total = len(partitions)
        first = self._next.get(job, 0) % total
        count = min(total, READ_MAX)
        self._next[job] = first + count
        return [partitions[(first + index) % total] for index in range(count)]
