"""What a client reads of a cluster: the log folded into replicas, jobs, statuses and reports; how a
job ends, and how far its inputs are.

How many positions the inputs of a job have completed is in documents beside the log: workers count
what they do, and what is replayed counts again. A frontier says how much there is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Self

from onyx.base.path_names import path_name
from onyx.client import reports
from onyx.client.deaths import read_deaths
from onyx.client.manifests import digest_of, manifest
from onyx.client.reports import committed_totals
from onyx.client.statuses import JobStatus, status_at, statuses
from onyx.errors import UserError
from onyx.history.replicas import Change, Replicas
from onyx.ids import JobId, Position, TaskName
from onyx.log.documents import completed_position
from onyx.log.interface import ClientLog, Origin
from onyx.model.job import Job
from onyx.replica.command import Entry
from onyx.replica.jobs import has_completed
from onyx.replica.state import Replica
from onyx.reports.deaths import Death
from onyx.reports.stalls import Stall

PARTITIONS_MAX = 5_000
"""Documents that are read; with more there is no answer."""
AT_ONCE = 8
FORGOTTEN = "its id was let go by `onyx gc`, or by more than ONYX_HISTORY_REMEMBERED_MAX jobs since"


class JobReader:
    """The half of a client that changes nothing. A context manager, or call `close`."""

    def __init__(self, log: ClientLog, replicas: Replicas) -> None:
        self.log = log
        self._replicas = replicas

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.log.close()

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
        return wait(self._replicas, job, timeout_s, progress)

    def entries(self, after: Position) -> Iterator[Entry]:
        """All entries behind a position that are there now. See `Replicas.entries`."""
        return self._replicas.entries(after)

    def changes(self) -> Iterator[Change]:
        """All entries with what they have changed. See `Replicas.changes`."""
        return self._replicas.changes()

    def replica(self, at: Position | None = None) -> Replica:
        """The current replica, or the one at a position. See `Replicas.at`."""
        return self._replicas.at(at)

    def first_replica(self) -> Replica:
        """The replica that the log starts from."""
        return self._replicas.start()

    def follow(
        self,
        deliver: Callable[[Entry | Origin, Replica], None],
        after: Replica | None = None,
        failed: Callable[[], None] = lambda: None,
    ) -> AbstractContextManager[None]:
        """Call `deliver` for each entry with the replica after it. See `Replicas.follow`."""
        return self._replicas.follow(deliver, after, failed)

    def exception(self, job: JobId) -> dict[str, Any] | None:
        """The report of a task that killed its job; None if no task did."""
        return reports.exception(self.log, job)

    def stalls(self, replica: Replica, job: JobId) -> list[Stall]:
        """The tasks of a job that do not advance, as live workers report."""
        return reports.stalls(self.log, replica, job)

    def deaths(self) -> list[Death]:
        """Worker processes that have died, as their supervisors have reported."""
        return read_deaths(self.log)

    def status_at(self, replica: Replica, job: JobId) -> JobStatus:
        """The status of a job as of a replica."""
        return status_at(self.log, replica, job)

    def completed_positions(self, replica: Replica, manifest: Job, job: JobId) -> dict[str, int]:
        """How many positions each input of a job has completed."""
        return completed_positions(self.log, replica, manifest, job)

    def job(self, job: JobId) -> Job:
        """The job as it was submitted."""
        return manifest(self.log, self.replica(), job)

    def status(self, job: JobId) -> JobStatus:
        """The current status of a job."""
        return self.status_at(self.replica(), job)

    def statuses(self) -> list[JobStatus]:
        """Every job that the replica knows, in the order of submission."""
        return statuses(self.log, self.replica())


def completed_positions(
    log: ClientLog, replica: Replica, manifest: Job, job: JobId
) -> dict[str, int]:
    """By input. Those are missing of which nothing is known, as under at-most-once.

    Args:
        replica: one in which the job has not completed: then its partitions are forgotten.
    """
    entries = [entry for entry in manifest.catalog if entry.type == "input"]
    committed = committed_totals(log, manifest, job)
    if committed is not None:
        names = [entry.name for entry in entries]
        return {name: committed[name].segments_in for name in names if name in committed}
    if job not in replica.records or manifest.guarantee == "at-most-once":
        return {}
    registered = replica.partitions(job)
    tracked = [TaskName(entry.name) for entry in entries if entry.guarantee != "at-most-once"]
    inputs = {task: registered[task] for task in tracked if task in registered}
    if sum(each.count for each in inputs.values()) > PARTITIONS_MAX:
        return {}

    position = partial(completed_position, log, job)
    found: dict[str, int] = {}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for task, its in inputs.items():
            known = list(threads.map(position, range(its.first, its.first + its.count)))
            if None not in known:
                found[task] = sum(filter(None, known))
    return found


def wait(
    replicas: Replicas,
    job: JobId,
    timeout_s: float | None,
    progress: Callable[[Replica], None],
) -> bool:
    """Whether the job has completed, once it has ended. See `JobReader.wait`."""
    replica = replicas.at()
    completed = has_completed(replica, JobId(path_name(job, "the id of a job")))
    if completed is not None:
        return completed
    digest_of(replica, job)
    ended = threading.Event()
    answer: list[bool | None] = []

    def look(_: Entry | Origin, replica: Replica) -> None:
        progress(replica)
        if job not in replica.jobs:
            answer.append(has_completed(replica, job))
            ended.set()

    progress(replica)
    with replicas.follow(look, replica, ended.set):
        if not ended.wait(timeout_s):
            raise TimeoutError(f"job {job} has not ended after {timeout_s} s")
    if answer[0] is None:
        raise UserError(f"job {job} has ended, and nobody knows any more how: {FORGOTTEN}")
    return answer[0]
