"""How far jobs are: the sum of the frontiers of their partitions, read from beside the log.

The frontier is what the engine itself goes by after a crash, so it is right, never falls, and is
there when the workers are gone. Rejected: asking the workers' metrics pages, as `onyx run` does.
That costs a request a worker, needs a way through every network policy, and knows nothing of what
workers did that are gone.

Cheap by construction: a job has few partitions; of one with many, `READ_MAX` are read at a time and
the others count as they were, which is a lower bound all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyx.ids import JobId
from onyx.log import job_documents
from onyx.log.frontier_documents import completed_position
from onyx.log.interface import ClientLog

READ_MAX = 128
"""Documents read at a time."""
JOBS_MAX = 5_000
"""Jobs that are remembered."""


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
            else list(log.list_documents(job_documents.frontiers(job)))[:READ_MAX]
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
