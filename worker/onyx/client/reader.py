"""What a client reads of a cluster: the log folded into replicas, jobs, statuses and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Self

from onyx.client import reports, waiting
from onyx.client.deaths import read_deaths
from onyx.client.manifests import manifest
from onyx.client.positions import completed_positions
from onyx.client.statuses import JobStatus, status_at, statuses
from onyx.history.replicas import Replicas
from onyx.ids import JobId, Position
from onyx.log.interface import ClientLog, Origin
from onyx.model.job import Job
from onyx.replica.command import Entry
from onyx.replica.state import Replica
from onyx.reports.deaths import Death
from onyx.reports.stalls import Stall


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
        return waiting.wait(self._replicas, job, timeout_s, progress)

    def entries(self, after: Position) -> Iterator[Entry]:
        """All entries behind a position that are there now. See `Replicas.entries`."""
        return self._replicas.entries(after)

    def replica(self, at: Position | None = None) -> Replica:
        """The current replica, or the one at a position. See `Replicas.at`."""
        return self._replicas.at(at)

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
        """How many positions each input of a job has completed. See `positions`."""
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
