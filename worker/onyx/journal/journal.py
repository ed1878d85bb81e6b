"""The journal of one partition: what a source has given, durable before anybody works on it.

A source without stable positions (requests of clients, a queue) cannot be read again. So whatever
it gives is appended here, with the source's own cursor in the same chunk, and only then
acknowledged to the source and emitted. From here on it has positions like a file's: what is lost is
read again from the journal. Its logs are fenced ones (`storage.fenced_log`): a new owner ends every
older one (`opening`).

Chunks go when the job's frontier has passed them. What must outlive them (the end, the source's
cursor, the ids of requests) is in a summary first, and before that in a file what is to be kept of
them (`kept`). So a summary is also the mark up to which everything is processed.

Rejected: one file that is appended to. An fdatasync costs a quarter of a new file (0.24 to 0.9 ms,
measured), but object stores cannot append, and a zombie could go on writing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from onyx.errors import StateError, Unavailable, UserError
from onyx.flow.batch import Segments
from onyx.journal.chunk import (
    Chunk,
    Content,
    Kind,
    Remembered,
    Summary,
    encode_chunk,
    encode_summary,
)
from onyx.journal.index import Indexed
from onyx.journal.kept import Kept, KeptFile
from onyx.journal.logs import JournalLogs
from onyx.journal.names import PartitionFolder, Place
from onyx.journal.opening import Found, claim, each_once
from onyx.model.retention import NOTHING, Retention
from onyx.storage.fenced_log import LogWriter
from onyx.storage.interface import BlobStore

logger = logging.getLogger(__name__)

COLLECTED_BYTES_MIN = 16_777_216
COLLECTED_CHUNKS_MIN = 256
"""Chunks that have been passed are deleted when they are so many or so large: each deletion writes
a summary first, and perhaps a file of what is kept."""
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
        self._kept = Kept(store, folder)
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
        self.restored: Sequence[Remembered] = found.requests
        """Requests that the journal remembers from before, in the order of their positions."""

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
            place, wall_ms = Place(self._version, seq), self._wall_ms
            said = self.end, content, self.origin, wall_ms
            return encode_chunk(self._folder, place, Kind.DATA, self._writer, *said)

        size_bytes = self._log.append(content, encoded)
        place = Place(self._version, self._log.last)
        first, count = self.end, content.count
        with self._lock:
            self._index.add(Indexed(place, first, count, size_bytes, self._wall_ms))
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
        found: Chunk | KeptFile | None = None
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
        return found.first, found.runs()

    def collect(
        self, frontier: int, remembered: Callable[[], Sequence[Remembered]], all_of_it: bool
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
        # The cursor may lie behind the chunks of the summary: a later chunk holds the same or a
        # later one, so whoever reads both ends with the later one.
        known = [each for each in remembered() if each.end <= last.end]
        summary = Summary(last.end, cursor, known, self.origin, last.wall_ms)
        try:
            if self._retention.keeps:
                self._keep(passed)
            self._replace(last.place, summary)
            for each in passed:
                self._store.delete(self._folder.chunk(*each.place))
        except (Unavailable, UserError) as error:
            logger.warning("a journal that is not needed any more stays for now: %s", error)
            return False
        with self._lock:
            self._index.drop(len(passed))
        return True

    def _enough(self, passed: Sequence[Indexed], all_of_it: bool) -> bool:
        size_bytes = sum(each.size_bytes for each in passed)
        if size_bytes >= COLLECTED_BYTES_MIN or len(passed) >= COLLECTED_CHUNKS_MIN:
            return True
        if not self._retention.keeps:
            return all_of_it
        return self._now_ms() - passed[0].wall_ms >= COLLECTED_AGE_MS

    def _keep(self, passed: Sequence[Indexed]) -> None:
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

    def adopt(self, old: Found, folder: PartitionFolder, position: int) -> None:
        """Go on in the journal of another job: what this one has not processed, or keeps, is
        copied, with its positions. Can be repeated. Blocks; raises like `append`.

        Args:
            folder: of the other job's journal, in the same store.
            position: from which on the job reads.
        """
        self._kept.take_over(folder, self._retention, self._now_ms(), position)
        if self.origin != old.origin:
            place = Place(self._version, 0)
            before = min((each.first for each in old.index), default=old.end)
            known = [each for each in old.requests if each.end <= before]
            self._replace(place, Summary(before, old.cursor, known, old.origin, old.wall_ms))
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

    def _replace(self, place: Place, summary: Summary) -> None:
        """Write a summary, then remove older ones."""
        name = self._folder.mark(*place)
        if not self._store.create(name, encode_summary(summary)):
            # One of the same place is as good: it was written of the same chunks.
            logger.debug("%s is there already", name)
        for version, log in self._logs.list().items():
            for seq in log.marks:
                if Place(version, seq) < place:
                    self._store.delete(self._folder.mark(version, seq))


def _is_news(request: Remembered, known: Remembered | None) -> bool:
    """Whether a journal does not know a request, or not what became of it."""
    return known is None or (known.outcomes is None and request.outcomes is not None)
