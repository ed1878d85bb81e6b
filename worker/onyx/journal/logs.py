"""The logs of a journal: names of their files, and chunks and summaries as bytes.

    <job>/journal.inputs/<task>/<partition>/<version>/<seq>
    <job>/journal.kept/<task>/<partition>/<first>-<end>-<time>

Each owner of a partition writes a log of its own, named after the allocation version in which it
took the partition over. Beside a chunk may lie a summary, `<seq>.summary`, of all that the journal
has held up to this chunk: a mark (`storage.fenced_log`). What is kept of that is the `depot`.

A chunk holds what one append made durable: the segments of some requests, or what a source gave
together with its cursor. Both in one chunk, because exactly-once rests on it: a source goes on
behind its cursor exactly when what came before is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from onyx.base.structs import RESTORE
from onyx.codec.sealed import FileFormat, opened, seal
from onyx.codec.segment_runs import decode_run, encode_run
from onyx.errors import Fenced, StateError
from onyx.flow.batch import Segments
from onyx.storage.fenced_log import FencedLogs, Listed, LogFolder, Missing
from onyx.storage.interface import ListedFile

JOURNALS = "journal.inputs"
"""A folder of a job, beside its tasks, whose names have no dot."""
KEPT = "journal.kept"
"""Another one."""
_KEPT_NAME = re.compile(r"(\d{20})-(\d{20})-(\d{15})\Z")
FORMAT = FileFormat(b"ONYXJL", 2, "chunk of a journal")
SUMMARY_FORMAT = FileFormat(b"ONYXJS", 1, "summary of a journal")


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

    def kept(self, span: DepotSpan) -> str:
        """The name of such a file."""
        return f"{self.kept_prefix}{span.first:020d}-{span.end:020d}-{span.wall_ms:015d}"


class ChunkPlace(NamedTuple):
    """A chunk by the log that it is in, and its number there. Places of a journal are in order."""

    version: int
    seq: int


class DepotSpan(NamedTuple):
    """A file of what is kept, as its name says. Spans of a journal are in order."""

    first: int
    """Position of its first segment."""
    end: int
    """Behind its last position."""
    wall_ms: int
    """When the last of them was written."""


def spans_of(folder: PartitionFolder, stored: Iterable[ListedFile]) -> dict[DepotSpan, int]:
    """The files of what is kept in order, and the bytes of each; other names are left out."""
    found = {}
    for name, size_bytes in sorted(stored):
        match = _KEPT_NAME.match(name.removeprefix(folder.kept_prefix))
        if match is not None:
            found[DepotSpan(int(match[1]), int(match[2]), int(match[3]))] = size_bytes
    return found


class ChunkKind(IntEnum):
    """What a chunk is for."""

    OPEN = 0
    """The first of a log, which says who writes it."""
    DATA = 1
    FENCE = 2
    """The end of a log: a writer that finds it may not append."""


class RememberedRequest(msgspec.Struct, array_like=True, frozen=True):
    """A request that the journal knows by its id."""

    id: str
    digest: bytes
    """Digest of its content: a repeated id with other content is an error."""
    first: int
    """Position of its first segment in this partition."""
    count: int
    wall_ms: int
    """When it was appended."""
    outcomes: Any = None
    """Where segments of it have failed for good, what became of it (`ledger.outcomes`). It is
    appended again then, and the later one counts."""

    @property
    def end(self) -> int:
        """Behind its last position."""
        return self.first + self.count


class Content(msgspec.Struct, frozen=True):
    """What one append makes durable."""

    runs: Sequence[Segments]
    requests: Sequence[RememberedRequest] = ()
    cursor: Any = None
    """JSON value from which the source goes on behind these segments; None for requests."""

    @property
    def count(self) -> int:
        """Segments."""
        return sum(map(len, self.runs))


class JournalSummary(msgspec.Struct, array_like=True, frozen=True):
    """What must outlive the chunks up to a place."""

    end: int
    """Position behind the last one of them."""
    cursor: Any
    requests: list[RememberedRequest]
    """In the order of their positions."""
    origin: str
    """The job that began the journal; those that upgrade it go on in it."""
    wall_ms: int
    """When the last of them was written."""


class _Header(msgspec.Struct, array_like=True, frozen=True):
    kind: ChunkKind
    job: str
    task: str
    partition: int
    version: int
    seq: int
    writer: str
    first: int = 0
    count: int = 0
    requests: tuple[RememberedRequest, ...] = ()
    cursor: Any = None
    sizes: tuple[int, ...] = ()
    """Bytes of payload and schema of each run."""
    origin: str = ""
    """The job that began the journal, of a chunk with segments."""
    wall_ms: int = 0
    """When it was written; never before the chunk before it."""


_encoder = msgspec.msgpack.Encoder()
_headers = msgspec.msgpack.Decoder(_Header)
_summaries = msgspec.msgpack.Decoder(JournalSummary)


class Chunk(_Header, frozen=True):
    """A chunk as it was read; its segments are decoded on demand."""

    body: memoryview = memoryview(b"")
    size_bytes: int = 0
    """The bytes of all of the chunk."""

    @property
    def is_fence(self) -> bool:
        """Whether it ends its log."""
        return self.kind is ChunkKind.FENCE

    @property
    def end(self) -> int:
        """Behind its last position."""
        return self.first + self.count

    def runs(self) -> list[Segments]:
        """Its segments. Raises SegmentError if they are not as they were written."""
        return decode_runs(self.sizes, self.body)


NOWHERE = ChunkPlace(-1, -1)


class JournalLogs(FencedLogs[int, Chunk]):
    """The logs of one partition, by their versions."""

    WHAT: ClassVar[str] = "journal"
    folder: PartitionFolder

    def decode(self, key: int, seq: int, data: bytes) -> Chunk:
        """A chunk, its segments still encoded."""
        return decode_chunk(self.folder, ChunkPlace(key, seq), data)

    def fence_data(self, key: int, seq: int) -> bytes:
        """A chunk of nothing and nobody."""
        return encode_chunk(self.folder, ChunkPlace(key, seq), ChunkKind.FENCE, "")

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

    def summary(self, at: ChunkPlace) -> JournalSummary:
        """A summary. Raises Missing: it is not there; StateError: it is damaged."""
        name = self.folder.mark(*at)
        data = self.store.read(name)
        if data is None:
            raise Missing(name)
        return decode_summary(name, data)


def newest_summary(logs: Mapping[int, Listed]) -> ChunkPlace:
    """Where reading begins: behind the chunks that the newest summary stands for."""
    found = (ChunkPlace(version, log.marks[-1]) for version, log in logs.items() if log.marks)
    return max(found, default=NOWHERE)


def decode_runs(sizes: Sequence[int], body: memoryview) -> list[Segments]:
    """Segments of payloads and schemas of these sizes. Raises SegmentError."""
    ends = list(accumulate(sizes, initial=0))
    parts = [bytes(body[first:end]) for first, end in pairwise(ends)]
    return [
        decode_run(payload, schema) for payload, schema in zip(parts[::2], parts[1::2], strict=True)
    ]


def encode_chunk(
    folder: PartitionFolder,
    at: ChunkPlace,
    kind: ChunkKind,
    writer: str,
    first: int = 0,
    content: Content | None = None,
    origin: str = "",
    wall_ms: int = 0,
) -> bytes:
    """The bytes of a chunk.

    Args:
        writer: the incarnation that writes it.
        first: position of its first segment.
        origin, wall_ms: see `Chunk`.

    Raises:
        SegmentError: a value has no encoding.
    """
    content = content or Content(())
    body = [part for run in content.runs for part in encode_run(run)]
    header = _Header(
        kind, folder.job, folder.task, folder.partition, *at, writer, first, content.count,
        tuple(content.requests), content.cursor, tuple(map(len, body)), origin, wall_ms
    )  # fmt: skip
    return seal(FORMAT, _encoder.encode(header), body)


def decode_chunk(folder: PartitionFolder, at: ChunkPlace, data: bytes) -> Chunk:
    """
    Raises:
        StateError: these are not the bytes of this chunk.
    """
    name = folder.chunk(*at)
    header, body = opened(FORMAT, _headers, data, f"journal file {name}")
    found = (header.job, header.task, header.partition, header.version, header.seq)
    if found != (folder.job, folder.task, folder.partition, *at):
        raise wrong_file(name, "holds a chunk of another file")
    return Chunk(**asdict(header), body=body, size_bytes=len(data))


def of_job(data: bytes, job: str, where: str) -> bytes:
    """A chunk as one of another job. Raises StateError: these are not the bytes of a chunk."""
    header, body = opened(FORMAT, _headers, data, f"journal file {where}")
    return seal(FORMAT, _encoder.encode(replace(header, job=job)), [bytes(body)])


def encode_summary(summary: JournalSummary) -> bytes:
    """The bytes of a summary."""
    return seal(SUMMARY_FORMAT, _encoder.encode(summary), ())


def decode_summary(name: str, data: bytes) -> JournalSummary:
    """Raises StateError: these are not the bytes of a summary."""
    return opened(SUMMARY_FORMAT, _summaries, data, f"journal file {name}")[0]


def wrong_file(name: str, what: str) -> StateError:
    """The error of a file of a journal that is not as it was written."""
    return StateError(f"journal file {name} {what}; {RESTORE}")
