"""Names of logs and of what is in them: `<job>/<task>/<version:020d>-<rank:05d>/<seq:08d>`.

Beside the first chunk of a snapshot lies an empty mark, `<seq:08d>.whole`, once the snapshot is
complete: a listing is enough to know where reading begins (`storage.fenced_log`).
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from onyx.storage.fenced_log import LogFolder

WINDOWS_BY_SPARK = "windows.spark"
"""A folder of a job for files that are no chunks. Beside its tasks, whose names have no dot."""
BUCKETS_OF_SPARK = "buckets.spark"
"""A folder of a job for the state that its windows have between micro-batches on Spark."""


def bucket_chunk(job: str, task: str, name: str) -> str:
    """A chunk of state between micro-batches. Its name begins with the number of the batch."""
    return f"{bucket_prefix(job)}{task}/{name}"


def bucket_prefix(job: str) -> str:
    """Begins the names of all such chunks of a job."""
    return f"{job}/{BUCKETS_OF_SPARK}/"


class LogKey(NamedTuple):
    """A log of a task: of one peer in one allocation version."""

    version: int
    rank: int


class TaskFolder(LogFolder[LogKey], frozen=True):
    """Where the logs of a task are."""

    KEY: ClassVar[str] = r"\d{20}-\d{5}"
    DIGITS: ClassVar[int] = 8
    MARK: ClassVar[str] = ".whole"

    job: str
    task: str

    @property
    def prefix(self) -> str:
        """Begins the names of all files of the task's logs."""
        return f"{self.job}/{self.task}/"

    def name_of(self, key: LogKey) -> str:
        """The name of a log."""
        return f"{key.version:020d}-{key.rank:05d}"

    def key_of(self, name: str) -> LogKey:
        """The log of a name."""
        version, rank = name.split("-")
        return LogKey(int(version), int(rank))
