"""Names of what a journal keeps: `<job>/journal.inputs/<task>/<partition>/<version>/<seq>`.

Each owner of a partition writes a log of its own, named after the allocation version in which it
took the partition over. Numbers are padded, so that the order of names is that of numbers. Beside a
chunk may lie a summary, `<seq>.summary`, of all that the journal has held up to this chunk, and
beside a log `<version>.end`, how far it has come (`storage.ends`).

What is kept of that (`kept`) is in `<job>/journal.kept/<task>/<partition>/<first>-<end>-<time>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import field

from onyx.storage import ends
from onyx.storage.interface import Stored

JOURNALS = "journal.inputs"
"""A folder of a job, beside its tasks, whose names have no dot."""
_NAME = re.compile(rf"(\d{{20}})(?:{re.escape(ends.SUFFIX)}|/(\d{{12}})(\.summary)?)\Z")
KEPT = "journal.kept"
"""Another one."""
_KEPT_NAME = re.compile(r"(\d{20})-(\d{20})-(\d{15})\Z")


class PartitionFolder(NamedTuple):
    """Where the journal of a partition is."""

    job: str
    task: str
    partition: int

    @property
    def prefix(self) -> str:
        """Begins the names of all files of the journal."""
        return f"{self.job}/{JOURNALS}/{self.task}/{self.partition:05d}/"

    def chunk(self, at: Place) -> str:
        """The name of a chunk."""
        return f"{self.prefix}{at.version:020d}/{at.seq:012d}"

    def summary(self, at: Place) -> str:
        """The name of the summary of all chunks up to one."""
        return f"{self.chunk(at)}.summary"

    def end(self, version: int) -> str:
        """The name of the file that says how far a log has come."""
        return f"{self.prefix}{version:020d}{ends.SUFFIX}"

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


class Listing(msgspec.Struct):
    """What the folder of a journal holds."""

    chunks: dict[Place, int] = field(default_factory=dict)
    """Bytes of each, in order."""
    summaries: list[Place] = field(default_factory=list)
    """In order."""
    ends: set[int] = field(default_factory=set)
    """The logs beside which it is said how far they have come."""

    def last_of(self, version: int) -> int:
        """The number of the last chunk of a log, which may be collected; -1 without any."""
        places = (*self.chunks, *self.summaries)
        return max((place.seq for place in places if place.version == version), default=-1)

    def collected(self, at: Place) -> bool:
        """Whether the number of a chunk was used, and may be free again."""
        return any(each.version == at.version and each.seq >= at.seq for each in self.summaries)

    def first_of(self, version: int) -> int:
        """The number of the first chunk of a log behind the one that opened it; 1 without any."""
        found = (place.seq for place in self.chunks if place.version == version and place.seq)
        return min(found, default=1)

    @property
    def versions(self) -> list[int]:
        """The logs, in order."""
        return sorted({place.version for place in self.chunks})


def spans_of(folder: PartitionFolder, stored: Iterable[Stored]) -> dict[Span, int]:
    """The files of what is kept in order, and the bytes of each; other names are left out."""
    found = {}
    for name, size_bytes in sorted(stored):
        match = _KEPT_NAME.match(name.removeprefix(folder.kept_prefix))
        if match is not None:
            found[Span(int(match[1]), int(match[2]), int(match[3]))] = size_bytes
    return found


def listing_of(folder: PartitionFolder, stored: Iterable[Stored]) -> Listing:
    """A listing of the folder; names of any other form are left out."""
    found = Listing()
    for name, size_bytes in sorted(stored):
        match = _NAME.match(name.removeprefix(folder.prefix))
        if match is None:
            continue
        if not match[2]:
            found.ends.add(int(match[1]))
            continue
        place = Place(int(match[1]), int(match[2]))
        if match[3]:
            found.summaries.append(place)
        else:
            found.chunks[place] = size_bytes
    return found
