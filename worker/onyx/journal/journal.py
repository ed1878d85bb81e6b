"""The journal of one partition: what a source has given, durable before anybody works on it.

A source without stable positions (requests of clients, a queue) cannot be read again. So whatever
it gives is appended here, with the source's own cursor in the same chunk, and only then
acknowledged to the source and emitted. From here on it has positions like a file's: what is lost is
read again from the journal.

Two may want it at once: a process that was declared dead and goes on, and the owner of a newer
allocation version. Each creates the first chunk of its own log, and only then lists the folder.
Whoever sees a log of a newer version gives up, and ends each older one (`storage.fenced_log`). So
of two, the newer one sees the older log and fences it, or the older one sees the newer log; and the
store decides whether an append or a fence comes first.

Chunks go when the job's frontier has passed them. What must outlive them (the end, the source's
cursor, the ids of requests) is in a summary first, and before that in a file what is to be kept of
them (`depot`). So a summary is also the mark up to which everything is processed. It stands for all
chunks up to its place, in older logs too. A fence ends nothing where its number had been used, and
the chunk was collected (`storage.fenced_log`): its owner lists again, and goes on from the summary.

Rejected: one file that is appended to. An fdatasync costs a quarter of a new file (0.24 to 0.9 ms,
measured), but object stores cannot append, and a zombie could go on writing.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import field

from onyx.errors import StateError, Unavailable, UserError
from onyx.flow.batch import Segments
from onyx.journal.depot import Depot, DepotFile
from onyx.journal.logs import (
    NOWHERE,
    Chunk,
    ChunkKind,
    ChunkPlace,
    Content,
    JournalLogs,
    JournalSummary,
    PartitionFolder,
    RememberedRequest,
    encode_chunk,
    encode_summary,
    newest_summary,
)
from onyx.model.retention import NOTHING, Retention
from onyx.storage.fenced_log import Listed, LogWriter
from onyx.storage.interface import BlobStore

logger = logging.getLogger(__name__)
COLLECTED_BYTES_MIN = 16_777_216
COLLECTED_CHUNKS_MIN = 256
"""Chunks that have been passed are deleted when they are so many or so large: each deletion writes
a summary first, and perhaps a file of what is kept."""
FILE_BYTES = 4_096
REMEMBERED_BYTES = 64
"""What a chunk takes on a disk beside its bytes, and a request in a summary, about. No summary is
written that would be larger than what it deletes: a hundred thousand requests are 6 MB."""
COLLECTED_AGE_MS = 3_600_000
"""Where they are kept, also when they are so old: a file is deleted by its newest chunk."""


class Journal:
    """A partition's journal, open. One thread appends; every other method is safe from any."""

    def __init__(
        self,
        store: BlobStore,
        folder: PartitionFolder,
        version: int,
        writer: str,
        retention: Retention = NOTHING,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """Take over the journal, in this allocation version. Blocks.

        Args:
            writer: the incarnation of this process.
            retention: how much is kept of what is processed.
            now_ms: wall clock, in milliseconds.

        Raises:
            Fenced: somebody else has taken it over, in this version or a newer one.
            StateError: a file is damaged.
        """
        self._logs = JournalLogs(store, folder)
        self._store = store
        self._folder = folder
        self._version = version
        self._writer = writer
        self._retention = retention
        self._now_ms = now_ms
        self._kept = Depot(store, folder)
        self._any_kept = True
        """Whether something may be kept."""
        self._lock = threading.Lock()
        found = claim(self._logs, version, writer)
        self._log = LogWriter(self._logs, version, found.last)
        self._index = found.index
        self.origin = found.origin
        """The job that began it; this one goes on in it."""
        self._wall_ms = found.wall_ms
        self.end = found.end
        """Position behind the last segment."""
        self.cursor = found.cursor
        """From where the source goes on; None if it has no cursor or nothing was read."""
        self.restored: Sequence[RememberedRequest] = found.requests
        """Requests that the journal remembers from before, in the order of their positions."""
        self._summarized = len(found.requests)
        """Requests in the last summary, or at the beginning."""

    @property
    def size_bytes(self) -> int:
        """Bytes of what is not processed."""
        return self._index.size_bytes

    def processed(self, frontier: int) -> None:
        """Everything before this position is."""
        with self._lock:
            self._index.processed(frontier)

    def append(self, content: Content) -> int:
        """Make segments durable. Returns the position of the first one.

        Raises:
            Fenced: somebody else owns the partition; nothing of `content` counts.
            Unavailable: it is in doubt whether it is durable. Append the same object again.
            SegmentError: a value has no encoding.
            UserError: the store refuses (rights, path).
        """
        assert self._log.doubtful is None or self._log.doubtful is content, (
            "what is in doubt is appended again first"
        )

        def encoded(seq: int) -> bytes:
            # Clocks of two owners differ, and times have to follow positions.
            self._wall_ms = max(self._now_ms(), self._wall_ms)
            place, wall_ms = ChunkPlace(self._version, seq), self._wall_ms
            said = self.end, content, self.origin, wall_ms
            return encode_chunk(self._folder, place, ChunkKind.DATA, self._writer, *said)

        size_bytes = self._log.append(content, encoded)
        place = ChunkPlace(self._version, self._log.last)
        first, count = self.end, content.count
        with self._lock:
            self._index.add(IndexedChunk(place, first, count, size_bytes, self._wall_ms))
            self.cursor = content.cursor if content.cursor is not None else self.cursor
            self.end += count
        return first

    def first_of(self, position: int) -> int:
        """The first position of the chunk that has this one; the position itself if none has."""
        with self._lock:
            chunk = self._index.at(position)
        return position if chunk is None else chunk.first

    def read(self, position: int) -> tuple[int, list[Segments]]:
        """The chunk or kept file that has a position: the position of its first segment, and its
        runs.

        Raises:
            StateError: it is gone or damaged.
        """
        with self._lock:
            indexed = self._index.at(position)
        found: Chunk | DepotFile | None = None
        if indexed is not None:
            found = self._logs.find(*indexed.place)
        if found is None:  # a writer that was declared dead may have collected too
            found = self._kept.find(position)
        if found is None:
            raise StateError(
                f"job {self._folder.job!r}, task {self._folder.task!r}: position {position} of "
                f"partition {self._folder.partition} is not in its journal {self._folder.prefix} "
                "any more; restore its files from a copy, or submit the job again under another "
                "name"
            )
        assert found.first <= position < found.end, "what is read has the position"
        return found.first, found.runs()

    def collect(
        self, frontier: int, remembered: Callable[[], Sequence[RememberedRequest]], all_of_it: bool
    ) -> bool:
        """Delete the chunks before a position below which the job never reads again, and keep what
        is to be kept of them. A failure is logged, and the next call tries again.

        Args:
            remembered: gives the requests that are to be known further on, in the order of their
                positions. Asked only when something is deleted.
            all_of_it: also if it is little, unless it is kept: then files would be small.

        Returns:
            Whether anything was deleted.
        """
        with self._lock:
            self._index.processed(frontier)
            passed = self._index.before(frontier)
            cursor = self.cursor
        if not passed or not self._enough(passed, all_of_it):
            return False
        last = passed[-1]
        assert last.end <= frontier, "what is not processed stays"
        # The cursor may lie behind the chunks of the summary: a later chunk holds the same or a
        # later one, so whoever reads both ends with the later one.
        known = [each for each in remembered() if each.end <= last.end]
        summary = JournalSummary(last.end, cursor, known, self.origin, last.wall_ms)
        try:
            if self._retention.keeps:
                self._keep(passed)
            self._replace(last.place, summary)
            self._store.delete_all(self._folder.chunk(*each.place) for each in passed)
        except (Unavailable, UserError) as error:
            logger.warning("a journal that is not needed any more stays for now: %s", error)
            return False
        with self._lock:
            self._index.drop(len(passed))
        self._summarized = len(known)
        return True

    def _enough(self, passed: Sequence[IndexedChunk], all_of_it: bool) -> bool:
        size_bytes = sum(each.size_bytes for each in passed)
        if self._retention.keeps and self._now_ms() - passed[0].wall_ms >= COLLECTED_AGE_MS:
            return True
        if size_bytes + FILE_BYTES * len(passed) < REMEMBERED_BYTES * self._summarized:
            return False
        if size_bytes >= COLLECTED_BYTES_MIN or len(passed) >= COLLECTED_CHUNKS_MIN:
            return True
        return all_of_it and not self._retention.keeps

    def _keep(self, passed: Sequence[IndexedChunk]) -> None:
        """Put chunks together into files, but those that are in one: an owner of before may have
        died, or a writer that was declared dead is at it too."""
        end = max((each.end for each in self._kept.list()), default=0)
        chunks: list[Chunk] = []
        size_bytes = 0
        for each in passed:
            if each.end <= end or not each.segments:
                continue
            chunk = self._logs.find(*each.place)
            if chunk is None:
                raise Unavailable(f"{self._folder.chunk(*each.place)} is gone")
            chunks.append(chunk)
            size_bytes += each.size_bytes
            if size_bytes >= COLLECTED_BYTES_MIN:
                self._kept.add(self.origin, chunks)
                chunks, size_bytes = [], 0
        if chunks:
            self._kept.add(self.origin, chunks)

    def drop(self, frontier: int) -> None:
        """Delete what is not to be kept any more, as far as the job never reads it again. Blocks;
        raises Unavailable and UserError."""
        if self._any_kept:
            self._kept.drop(self._retention, self._now_ms(), frontier)
            self._any_kept = self._retention.keeps or bool(self._kept.spans)

    def adopt(self, old: JournalContent, folder: PartitionFolder, position: int) -> None:
        """Go on in the journal of another job: what this one has not processed, or keeps, is
        copied, with its positions. Can be repeated. Blocks; raises like `append`.

        Args:
            folder: of the other job's journal, in the same store.
            position: from which on the job reads.
        """
        self._kept.take_over(folder, self._retention, self._now_ms(), position)
        if self.origin != old.origin:
            place = ChunkPlace(self._version, 0)
            before = min((each.first for each in old.index), default=old.end)
            known = [each for each in old.requests if each.end <= before]
            self._replace(place, JournalSummary(before, old.cursor, known, old.origin, old.wall_ms))
            self.end, self.cursor, self.restored = before, old.cursor, known
            self.origin, self._wall_ms = old.origin, old.wall_ms
        theirs = JournalLogs(self._store, folder)
        requests = [*self.restored]
        for each in old.index:
            if each.end <= self.end:
                continue
            chunk = theirs.find(*each.place)
            if chunk is None:
                raise StateError(
                    f"job {folder.job!r}, task {folder.task!r}: journal file "
                    f"{folder.chunk(*each.place)} is gone, of which job {self._folder.job!r} has "
                    "not read all: restore it from a copy"
                )
            self.append(Content(chunk.runs(), chunk.requests, chunk.cursor))
            requests += chunk.requests
        by_id = {each.id: each for each in requests}
        beside = [each for each in old.requests if _is_news(each, by_id.get(each.id))]
        if beside:  # of chunks without segments
            self.append(Content((), tuple(beside)))
        self.restored = each_once([*requests, *beside])

    def _replace(self, place: ChunkPlace, summary: JournalSummary) -> None:
        """Write a summary, then remove older ones."""
        name = self._folder.mark(*place)
        if not self._store.create(name, encode_summary(summary)):
            # One of the same place is as good: it was written of the same chunks.
            logger.debug("%s is there already", name)
        for version, log in self._logs.list().items():
            for seq in log.marks:
                if ChunkPlace(version, seq) < place:
                    self._store.delete(self._folder.mark(version, seq))


def _is_news(request: RememberedRequest, known: RememberedRequest | None) -> bool:
    """Whether a journal does not know a request, or not what became of it."""
    return known is None or (known.outcomes is None and request.outcomes is not None)


class IndexedChunk(NamedTuple):
    """A chunk with segments."""

    place: ChunkPlace
    first: int
    """Position of its first segment."""
    segments: int
    size_bytes: int
    wall_ms: int
    """When it was written."""

    @property
    def end(self) -> int:
        """Behind its last position."""
        return self.first + self.segments


class ChunkIndex:
    """The chunks that are kept, in order. Not thread-safe."""

    def __init__(self) -> None:
        self._chunks: deque[IndexedChunk] = deque()
        self._frontier = 0
        self.size_bytes = 0
        """Bytes of those that are not processed."""

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[IndexedChunk]:
        return iter(self._chunks)

    def add(self, chunk: IndexedChunk) -> None:
        """A chunk behind all others."""
        assert not self._chunks or chunk.first == self._chunks[-1].end, "positions have no gap"
        self._chunks.append(chunk)
        if chunk.end > self._frontier:
            self.size_bytes += chunk.size_bytes

    def at(self, position: int) -> IndexedChunk | None:
        """The chunk that has a position; None: none has."""
        number = bisect_right(self._chunks, position, key=attrgetter("first")) - 1
        if number < 0 or position >= self._chunks[number].end:
            return None
        return self._chunks[number]

    def processed(self, frontier: int) -> None:
        """Everything before this position is."""
        self.size_bytes -= sum(
            each.size_bytes for each in self.before(frontier) if each.end > self._frontier
        )
        self._frontier = max(frontier, self._frontier)

    def before(self, position: int) -> list[IndexedChunk]:
        """The chunks all of whose positions are below one."""
        found = []
        for chunk in self._chunks:
            if chunk.end > position:
                break
            found.append(chunk)
        return found

    def drop(self, count: int) -> None:
        """Forget the first chunks, which are processed."""
        assert not count or self._chunks[count - 1].end <= self._frontier, "they may be read again"
        for _ in range(count):
            self._chunks.popleft()


class JournalContent(msgspec.Struct):
    """What a journal holds."""

    end: int = 0
    """Position behind the last segment."""
    cursor: Any = None
    """Cursor of the source; None if it has none, or nothing was read."""
    requests: list[RememberedRequest] = field(default_factory=list)
    """All that are remembered, in the order of their positions."""
    index: ChunkIndex = field(default_factory=ChunkIndex)
    """Chunks that may be read."""
    last: int = 0
    """Number of the last chunk of the own log."""
    origin: str = ""
    """The job that began the journal."""
    wall_ms: int = 0
    """When the last chunk was written."""


def claim(logs: JournalLogs, version: int, writer: str) -> JournalContent:
    """Begin the log of this version, end all others, and read what they hold.

    Args:
        writer: the incarnation that takes over.

    Raises:
        Fenced: somebody else has taken the partition over, in this version or a newer one.
        StateError: a file is damaged.
    """
    # Before the listing: of two who take over at once, the later one sees the log of the other.
    if not logs.begin(
        version, encode_chunk(logs.folder, ChunkPlace(version, 0), ChunkKind.OPEN, writer)
    ):
        raise logs.fenced(version)
    found = logs.steadily(lambda listed: _read(logs, listed, version))
    if logs.find(version, found.last + 1) is not None:
        raise logs.fenced(version)  # meanwhile: a newer owner may have appended already
    return found


def read_ended(store: BlobStore, folder: PartitionFolder) -> JournalContent:
    """End a journal whose job has ended, so that nobody appends to it, and read what it holds.
    Raises StateError: a file is damaged."""
    logs = JournalLogs(store, folder)
    return logs.steadily(lambda listed: _read(logs, listed, None))


def each_once(requests: Iterable[RememberedRequest]) -> list[RememberedRequest]:
    """Requests in the order of their positions, whatever the order of their chunks: one without
    segments comes later where a job goes on in the journal of another. It may be in a summary and
    in a chunk behind that too. Of an id that was forgotten and used again, the later one."""
    found = {each.id: each for each in requests}
    return sorted(found.values(), key=lambda each: (each.first, each.count))


def _read(logs: JournalLogs, listed: Mapping[int, Listed], own: int | None) -> JournalContent:
    """Everything behind the newest summary; what is before it is deleted. But not by an owner that
    was overtaken: the fence of its own log may lie before a summary of the newer one."""
    begun = {version: log for version, log in listed.items() if log.sizes}
    if own is not None and max(begun, default=own) > own:
        raise logs.fenced(own)
    for version in listed.keys() - begun:
        logs.check_begun(version, listed[version])
    found, start = JournalContent(origin=logs.folder.job), newest_summary(listed)
    if start != NOWHERE:
        summary = logs.summary(start)
        found.end, found.cursor, found.requests = summary.end, summary.cursor, summary.requests
        found.origin, found.wall_ms = summary.origin, summary.wall_ms
    for version, log in begun.items():
        if version == own:  # by this very process: opening was tried before
            end = logs.end(version, log)
            if end in log.sizes:
                raise logs.fenced(version)
            found.last = end - 1
        else:
            # What a log holds is known only once nobody can append to it. A summary in a newer log
            # stands for all of this one, of which nothing need be there any more.
            end = logs.fence(version, log, replaced=start.version > version)
        # Chunks go only behind a summary of their place: it has not been listed, or was lost.
        if log.first > 1 and start < ChunkPlace(version, log.first - 1):
            raise logs.unlisted(version, log.first - 1, log.first - 1)
        for seq in range(log.first, end):
            if ChunkPlace(version, seq) <= start:  # its collector died, or is still at it
                logs.store.delete(logs.folder.chunk(version, seq))
            else:
                _add(logs, ChunkPlace(version, seq), found)
    found.requests = each_once(found.requests)
    return found


def _add(logs: JournalLogs, at: ChunkPlace, found: JournalContent) -> None:
    chunk, folder = logs.read(*at), logs.folder
    if chunk.first != found.end:
        raise StateError(
            f"journal file {folder.chunk(*at)} begins at position {chunk.first}, but what is there "
            f"of the journal before ends at {found.end}: files before it are gone, or the summary "
            f"that stood for them, {folder.mark(at.version, at.seq - 1)} or a later one; "
            "restore them from a copy, or submit the job again under another name"
        )
    found.index.add(IndexedChunk(at, chunk.first, chunk.count, chunk.size_bytes, chunk.wall_ms))
    found.end += chunk.count
    found.requests += chunk.requests
    found.cursor = chunk.cursor if chunk.cursor is not None else found.cursor
    if chunk.kind is ChunkKind.DATA:
        found.origin, found.wall_ms = chunk.origin, chunk.wall_ms
