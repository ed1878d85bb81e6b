"""What a journal keeps of what is processed, for other jobs and later ones: its *depot*.

Chunks are as small as requests are. So those that are processed are put together into files before
they are deleted. The name of a file says its positions and its time: a listing is the index, and
whoever takes the journal over reads none of them.

A file is there before the summary behind its chunks, and that before a chunk is deleted. So each
position is in one or the other, and after a crash perhaps in both.

Nothing fences these files. What stands at a position was decided when its chunk was created, so a
writer that was declared dead writes the truth too. Files may overlap; any of them will do.

Rejected: chunks that stay where they are. A listing, which every takeover and every collection
makes, would have a name for each request of weeks, and their positions would be in none of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import msgspec
from msgspec.structs import asdict

from onyx.codec.sealed import FileFormat, opened, seal
from onyx.errors import UserError
from onyx.flow.batch import Segments
from onyx.journal.logs import Chunk, DepotSpan, PartitionFolder, decode_runs, spans_of, wrong_file
from onyx.model.retention import DAY_MS, Retention
from onyx.storage.interface import BlobStore

COPIES_AT_ONCE = 8
FORMAT = FileFormat(b"ONYXJK", 1, "file of a kept journal")


class Gone(UserError):
    """A position is not kept any more."""


class _Header(msgspec.Struct, array_like=True, frozen=True):
    task: str
    partition: int
    origin: str
    first: int
    chunks: tuple[tuple[int, int], ...]
    """Segments and time of each chunk that it is made of."""
    sizes: tuple[int, ...]


_encoder = msgspec.msgpack.Encoder()
_headers = msgspec.msgpack.Decoder(_Header)


class DepotFile(_Header, frozen=True):
    """A file as it was read."""

    body: memoryview = memoryview(b"")

    @property
    def end(self) -> int:
        """Behind its last position."""
        return self.first + sum(count for count, _ in self.chunks)

    def runs(self) -> list[Segments]:
        """Its segments. Raises SegmentError if they are not as they were written."""
        return decode_runs(self.sizes, self.body)

    def since(self, wall_ms: int) -> int:
        """The first position that was not written before this time."""
        position = self.first
        for count, at_ms in self.chunks:
            if at_ms >= wall_ms:
                break
            position += count
        return position


class Depot:
    """The files of one partition. Every method blocks, and raises like the store. Safe from any
    thread."""

    def __init__(self, store: BlobStore, folder: PartitionFolder) -> None:
        """Nothing is listed yet."""
        self._store = store
        self._folder = folder
        self.spans: dict[DepotSpan, int] = {}
        """The files of the last listing in order, and their bytes."""

    def list(self) -> dict[DepotSpan, int]:
        """The files that there are now."""
        self.spans = spans_of(self._folder, self._store.list(self._folder.kept_prefix))
        return self.spans

    def read(self, position: int) -> DepotFile | None:
        """A file of the last listing that has a position; None: none has it, or it is gone.
        Raises StateError: it is damaged."""
        before = [each for each in self.spans if each.first <= position < each.end]
        return self.open(before[-1]) if before else None

    def find(self, position: int) -> DepotFile | None:
        """A file that has a position; None: none has it. Raises like `read`."""
        found = self.read(position)
        if found is None:
            self.list()
            found = self.read(position)
        return found

    def open(self, span: DepotSpan) -> DepotFile | None:
        """A file; None: it is gone. Raises StateError: it is damaged."""
        name = self._folder.kept(span)
        data = self._store.read(name)
        return None if data is None else _decoded(self._folder, name, data)

    def add(self, origin: str, chunks: Sequence[Chunk]) -> None:
        """Keep chunks that follow one another."""
        assert all(one.end == other.first for one, other in pairwise(chunks)), "there is no gap"
        sizes = tuple(size for each in chunks for size in each.sizes)
        times = tuple((each.count, each.wall_ms) for each in chunks)
        task, partition = self._folder.task, self._folder.partition
        header = _Header(task, partition, origin, chunks[0].first, times, sizes)
        span = DepotSpan(chunks[0].first, chunks[-1].end, chunks[-1].wall_ms)
        # If somebody else has written it, it is the same.
        data = seal(FORMAT, _encoder.encode(header), [bytes(each.body) for each in chunks])
        self._store.create(self._folder.kept(span), data)

    def take_over(
        self, old: PartitionFolder, retention: Retention, now_ms: int, needed: int
    ) -> None:
        """Have what another journal has kept, as far as this one keeps it or reads it again: from
        the position `needed` on."""
        spans = spans_of(old, self._store.list(old.kept_prefix))
        if not spans:
            return
        wanted = spans.keys() - self.list().keys() - set(surplus(spans, retention, now_ms, needed))
        with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
            for copied in [pool.submit(self._copy, old, span) for span in wanted]:
                copied.result()

    def _copy(self, old: PartitionFolder, span: DepotSpan) -> None:
        self._store.copy(old.kept(span), self._folder.kept(span))

    def drop(self, retention: Retention, now_ms: int, frontier: int) -> None:
        """Delete what is not to be kept any more, but nothing that may still be read by the job
        itself: from `frontier` on."""
        goes = surplus(self.list(), retention, now_ms, frontier)
        for span in goes:
            self._store.delete(self._folder.kept(span))
        self.spans = {each: size for each, size in self.spans.items() if each not in goes}


def surplus(
    spans: dict[DepotSpan, int], retention: Retention, now_ms: int, frontier: int
) -> list[DepotSpan]:
    """The files that are too old or too many, and all before `frontier`."""
    days, room = retention.days, retention.size_bytes
    oldest_ms = -math.inf if days is None else now_ms - days * DAY_MS
    left = math.inf if room is None else room
    found = []
    for span, size_bytes in reversed(spans.items()):
        wanted = retention.keeps and span.wall_ms >= oldest_ms and left > 0
        left -= size_bytes
        if not wanted and span.end <= frontier:
            found.append(span)
    return found[::-1]


def _decoded(folder: PartitionFolder, name: str, data: bytes) -> DepotFile:
    header, body = opened(FORMAT, _headers, data, f"journal file {name}")
    if (header.task, header.partition) != (folder.task, folder.partition):
        raise wrong_file(name, "holds another file")
    return DepotFile(**asdict(header), body=body)
