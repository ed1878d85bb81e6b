"""Chunks and summaries of a journal as bytes (`codec.sealed`).

A chunk holds what one append made durable: the segments of some requests, or what a source gave
together with its cursor. Both in one chunk, because exactly-once rests on it: a source goes on
behind its cursor exactly when what came before is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Any

import msgspec
from msgspec.structs import asdict

from onyx.base.structs import RESTORE
from onyx.codec.sealed import Format, opened, seal
from onyx.codec.segment_runs import decode_run, encode_run
from onyx.errors import StateError
from onyx.flow.batch import Segments
from onyx.journal.names import PartitionFolder, Place

FORMAT = Format(b"ONYXJL", 2, "chunk of a journal")
SUMMARY_FORMAT = Format(b"ONYXJS", 1, "summary of a journal")


class Kind(IntEnum):
    """What a chunk is for."""

    OPEN = 0
    """The first of a log, which says who writes it."""
    DATA = 1
    FENCE = 2
    """The end of a log: a writer that finds it may not append."""


class Remembered(msgspec.Struct, array_like=True, frozen=True):
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
    requests: Sequence[Remembered] = ()
    cursor: Any = None
    """JSON value from which the source goes on behind these segments; None for requests."""

    @property
    def count(self) -> int:
        """Segments."""
        return sum(map(len, self.runs))


class Summary(msgspec.Struct, array_like=True, frozen=True):
    """What must outlive the chunks up to a place."""

    end: int
    """Position behind the last one of them."""
    cursor: Any
    requests: list[Remembered]
    """In the order of their positions."""
    origin: str
    """The job that began the journal; those that upgrade it go on in it."""
    wall_ms: int
    """When the last of them was written."""


class _Header(msgspec.Struct, array_like=True, frozen=True):
    kind: Kind
    job: str
    task: str
    partition: int
    version: int
    seq: int
    writer: str
    first: int = 0
    count: int = 0
    requests: tuple[Remembered, ...] = ()
    cursor: Any = None
    sizes: tuple[int, ...] = ()
    """Bytes of payload and schema of each run."""
    origin: str = ""
    """The job that began the journal, of a chunk with segments."""
    wall_ms: int = 0
    """When it was written; never before the chunk before it."""


_encoder = msgspec.msgpack.Encoder()
_headers = msgspec.msgpack.Decoder(_Header)
_summaries = msgspec.msgpack.Decoder(Summary)


class Chunk(_Header, frozen=True):
    """A chunk as it was read; its segments are decoded on demand."""

    body: memoryview = memoryview(b"")
    size_bytes: int = 0
    """The bytes of all of the chunk."""

    @property
    def is_fence(self) -> bool:
        """Whether it ends its log."""
        return self.kind is Kind.FENCE

    @property
    def end(self) -> int:
        """Behind its last position."""
        return self.first + self.count

    def runs(self) -> list[Segments]:
        """Its segments. Raises SegmentError if they are not as they were written."""
        return decode_runs(self.sizes, self.body)


def decode_runs(sizes: Sequence[int], body: memoryview) -> list[Segments]:
    """Segments of payloads and schemas of these sizes. Raises SegmentError."""
    ends = list(accumulate(sizes, initial=0))
    parts = [bytes(body[first:end]) for first, end in pairwise(ends)]
    return [
        decode_run(payload, schema) for payload, schema in zip(parts[::2], parts[1::2], strict=True)
    ]


def encode_chunk(
    folder: PartitionFolder,
    at: Place,
    kind: Kind,
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


def decode_chunk(folder: PartitionFolder, at: Place, data: bytes) -> Chunk:
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


def encode_summary(summary: Summary) -> bytes:
    """The bytes of a summary."""
    return seal(SUMMARY_FORMAT, _encoder.encode(summary), ())


def decode_summary(name: str, data: bytes) -> Summary:
    """Raises StateError: these are not the bytes of a summary."""
    return opened(SUMMARY_FORMAT, _summaries, data, f"journal file {name}")[0]


def wrong_file(name: str, what: str) -> StateError:
    """The error of a file of a journal that is not as it was written."""
    return StateError(f"journal file {name} {what}; {RESTORE}")
