"""Names of what a journal keeps: `<job>/journal.inputs/<task>/<partition>/<version>/<seq>`.

Each owner of a partition writes a log of its own, named after the allocation version in which it
took the partition over. Beside a chunk may lie a summary, `<seq>.summary`, of all that the journal
has held up to this chunk: a mark (`storage.fenced_log`).

What is kept of that (`kept`) is in `<job>/journal.kept/<task>/<partition>/<first>-<end>-<time>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from onyx.storage.fenced_log import LogFolder
from onyx.storage.interface import Stored

JOURNALS = "journal.inputs"
"""A folder of a job, beside its tasks, whose names have no dot."""
KEPT = "journal.kept"
"""Another one."""
_KEPT_NAME = re.compile(r"(\d{20})-(\d{20})-(\d{15})\Z")


class PartitionFolder(LogFolder[int], frozen=True):
    """Where the journal of a partition is; its logs are called by their versions."""

    KEY: ClassVar[str] = r"\d{20}"
    DIGITS: ClassVar[int] = 12
    MARK: ClassVar[str] = ".summary"

    job: str
    task: str
    partition: int

    @property
    def prefix(self) -> str:
        """Begins the names of all files of the journal's logs."""
        return f"{self.job}/{JOURNALS}/{self.task}/{self.partition:05d}/"

    def name_of(self, key: int) -> str:
        """The name of a log."""
        return f"{key:020d}"

    def key_of(self, name: str) -> int:
        """The log of a name."""
        return int(name)

    @property
    def kept_prefix(self) -> str:
        """Begins the names of all files of what is kept."""
        return f"{self.job}/{KEPT}/{self.task}/{self.partition:05d}/"

    def kept(self, span: Span) -> str:
        """The name of such a file."""
        return f"{self.kept_prefix}{span.first:020d}-{span.end:020d}-{span.wall_ms:015d}"


class Span(NamedTuple):
    """A file of what is kept, as its name says. Spans of a journal are in order."""

    first: int
    """Position of its first segment."""
    end: int
    """Behind its last position."""
    wall_ms: int
    """When the last of them was written."""


class Place(NamedTuple):
    """A chunk by the log that it is in, and its number there. Places of a journal are in order."""

    version: int
    seq: int


def spans_of(folder: PartitionFolder, stored: Iterable[Stored]) -> dict[Span, int]:
    """The files of what is kept in order, and the bytes of each; other names are left out."""
    found = {}
    for name, size_bytes in sorted(stored):
        match = _KEPT_NAME.match(name.removeprefix(folder.kept_prefix))
        if match is not None:
            found[Span(int(match[1]), int(match[2]), int(match[3]))] = size_bytes
    return found
