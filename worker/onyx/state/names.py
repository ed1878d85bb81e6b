"""Names of logs and of what is in them: `<job>/<task>/<version:020d>-<rank:05d>/<seq:08d>`.

Numbers are padded, so that the order of names is that of numbers. Beside the first chunk of a
snapshot lies an empty mark, `<seq:08d>.whole`, once the snapshot is complete: a listing is enough
to know where reading begins. Beside a log lies how far it has come, `<version>-<rank>.end`
(`storage.ends`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import field

from onyx.storage import ends
from onyx.storage.interface import Stored

WINDOWS_BY_SPARK = "windows.spark"
"""A folder of a job for files that are no chunks. Beside its tasks, whose names have no dot."""
BUCKETS_OF_SPARK = "buckets.spark"
"""A folder of a job for the state that its windows have between micro-batches on Spark."""
_NAME = re.compile(rf"(\d{{20}})-(\d{{5}})(?:{re.escape(ends.SUFFIX)}|/(\d{{8}})(\.whole)?)\Z")


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


class TaskFolder(NamedTuple):
    """Where the logs of a task are."""

    job: str
    task: str

    @property
    def prefix(self) -> str:
        """Begins the names of all chunks of the task."""
        return f"{self.job}/{self.task}/"

    def log(self, key: LogKey) -> str:
        """Begins the names of all chunks of a log."""
        return f"{self._log(key)}/"

    def end(self, key: LogKey) -> str:
        """The name of the file that says how far a log has come."""
        return f"{self._log(key)}{ends.SUFFIX}"

    def chunk(self, key: LogKey, seq: int) -> str:
        """The name of a chunk by its number in a log."""
        return f"{self.log(key)}{seq:08d}"

    def mark(self, key: LogKey, seq: int) -> str:
        """The name of the mark of a complete snapshot that begins at a chunk."""
        return f"{self.chunk(key, seq)}.whole"

    def _log(self, key: LogKey) -> str:
        return f"{self.prefix}{key.version:020d}-{key.rank:05d}"


class Listed(msgspec.Struct):
    """What a listing says of one log."""

    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes of each chunk by its number, in order."""
    marks: list[int] = field(default_factory=list)
    """Where complete snapshots begin, in order."""
    ends: bool = False
    """Whether it is said how far the log has come."""

    @property
    def opened(self) -> bool:
        """What has been deleted has no first chunk, only its fence is kept."""
        return 0 in self.sizes

    @property
    def last(self) -> int:
        """The number of the last chunk; -1 without any."""
        return max(self.sizes, default=-1)

    @property
    def start(self) -> int:
        """Where reading begins."""
        return self.marks[-1] if self.marks else 1

    @property
    def collected(self) -> bool:
        """Whether its first chunks are gone, as they go when it has a complete snapshot."""
        return min((seq for seq in self.sizes if seq), default=1) > 1


def by_log(folder: TaskFolder, listing: Iterable[Stored]) -> dict[LogKey, Listed]:
    """A listing of a task's folder; names of any other form are left out."""
    logs: dict[LogKey, Listed] = {}
    for name, size_bytes in listing:
        found = _NAME.match(name.removeprefix(folder.prefix))
        if found is None:
            continue
        log = logs.setdefault(LogKey(int(found[1]), int(found[2])), Listed())
        if not found[3]:
            log.ends = True
        elif found[4]:
            log.marks.append(int(found[3]))
        else:
            log.sizes[int(found[3])] = size_bytes
    return logs
