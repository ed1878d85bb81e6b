"""The logs of a journal: what is in their chunks and summaries (`storage.fenced_log`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from onyx.base.structs import RESTORE
from onyx.errors import Fenced, StateError
from onyx.journal.chunk import Chunk, Kind, Summary, decode_chunk, decode_summary, encode_chunk
from onyx.journal.names import PartitionFolder, Place
from onyx.storage.fenced_log import FencedLogs, Listed, Missing

NOWHERE = Place(-1, -1)


class JournalLogs(FencedLogs[int, Chunk]):
    """The logs of one partition, by their versions."""

    WHAT: ClassVar[str] = "journal"
    folder: PartitionFolder

    def decode(self, key: int, seq: int, data: bytes) -> Chunk:
        """A chunk, its segments still encoded."""
        return decode_chunk(self.folder, Place(key, seq), data)

    def fence_data(self, key: int, seq: int) -> bytes:
        """A chunk of nothing and nobody."""
        return encode_chunk(self.folder, Place(key, seq), Kind.FENCE, "")

    def fenced(self, key: int) -> Fenced:
        """The writer does not own the partition any more."""
        return Fenced(
            f"job {self.folder.job!r}, task {self.folder.task!r}: the journal of partition "
            f"{self.folder.partition} that allocation version {key} wrote belongs to another owner "
            "now"
        )

    def lost(self, missing: Missing) -> StateError:
        """A file of the journal is gone."""
        return StateError(
            f"job {self.folder.job!r}, task {self.folder.task!r}: journal file {missing} is gone: "
            f"{RESTORE}"
        )

    def unlisted(self, key: int, seq: int, reached: int) -> Missing:
        """A chunk is not there, or else a summary that stood for it and others."""
        chunk, summary = self.folder.chunk(key, seq), self.folder.mark(key, reached)
        return Missing(f"{chunk}, or else the summary {summary} or a later one,")

    def summary(self, at: Place) -> Summary:
        """A summary. Raises Missing: it is not there; StateError: it is damaged."""
        name = self.folder.mark(*at)
        data = self.store.read(name)
        if data is None:
            raise Missing(name)
        return decode_summary(name, data)


def newest_summary(logs: Mapping[int, Listed]) -> Place:
    """Where reading begins: behind the chunks that the newest summary stands for."""
    found = (Place(version, log.marks[-1]) for version, log in logs.items() if log.marks)
    return max(found, default=NOWHERE)
