"""The state log of one peer in one allocation version (`storage.fenced_log`): appends, snapshots,
and the deletion of chunks that nobody reads any more.

Own chunks are deleted before a complete snapshot: a reader begins at the snapshot. Older logs are
deleted when each of their shards has a complete snapshot in this allocation version. This version
is or was ready, so the peers of a newer version find its logs, fence them first, and then find the
snapshots in them; they never look behind those. A slower reader that finds a chunk gone lists
again. Deletion goes on beside the appends (`LogCollector`): a thousand chunks take seconds, and a
task that waited for it would answer nobody for as long.

The fence of an older log stays until the job's state is removed: a zombie (a process that was
declared dead and still runs) that wakes up after the deletion must still find it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from msgspec.structs import replace

from onyx.errors import InvariantViolated, StateError, Unavailable, UserError
from onyx.keystate.records import PutEntries, Record, SetStates
from onyx.settings import StateSettings
from onyx.state.chunks import (
    Chunk,
    ChunkFrame,
    ShardChange,
    ShardSection,
    StateChunkKind,
    all_sections_of,
    encode_chunk,
    sections_of,
)
from onyx.state.names import LogKey
from onyx.state.reading import THREADS, ReadAhead, StateLogs
from onyx.state.shard_states import RecoveryCost
from onyx.storage.fenced_log import Listed, LogWriter, Missing

PART_BYTES = 16_777_216
"""Size from which on a part of a snapshot is written."""
_SLICE_VALUES = 30_000
"""A shard's records go into a snapshot in slices of about so many values, so that parts do not get
much larger, and neither who writes one nor who reads it has more of them in memory."""
_OTHERS = 3
"""Values of a record with one group, and of what does not say how many it has."""


_logger = logging.getLogger(__name__)


class StateLog:
    """An open log. One thread at a time; every method but `wants_snapshot` blocks on the store.

    Nothing may be appended before the job is ready in this allocation version: only then do the
    peers of every newer version find this log.
    """

    def __init__(
        self,
        logs: StateLogs,
        key: LogKey,
        shards: Iterable[int],
        last: int,
        size: RecoveryCost,
        settings: StateSettings,
    ) -> None:
        """`last`: number of its last chunk. `size`: of what a reader of this log has to read."""
        self._logs = logs
        self._key = key
        self._writer = LogWriter(logs, key, last)
        self._shards = frozenset(shards)
        self._size = size
        self._settings = settings
        self._whole: int | None = None
        """Where the last complete snapshot begins."""

    def append(self, chunk: Chunk) -> None:
        """Make a chunk durable.

        Raises:
            Fenced: a newer version owns the shards; nothing of `chunk` counts.
            Unavailable: it is in doubt whether the chunk is durable. Append the same object again:
                it is written once.
            SegmentError: a value has no encoding.
            UserError: the store refuses (rights, path).
        """

        assert self._shards.issuperset(chunk.shards), "a log has the shards that it was opened for"

        def encoded(seq: int) -> bytes:
            return self._encoded(
                chunk, ChunkFrame(StateChunkKind.CHANGE, seq), all_sections_of(chunk.shards)
            )

        self._writer.append(chunk, encoded)

    @property
    def size_bytes(self) -> int:
        """What a reader of this log has to read, about; from any thread."""
        return self._size.snapshot + self._size.since

    @property
    def wants_snapshot(self) -> bool:
        """Whether the log takes longer to read and restore than a snapshot would."""
        settings = self._settings
        allowed = max(settings.snapshot_bytes_min, settings.snapshot_factor * self._size.snapshot)
        return self._size.since > allowed

    def snapshot(self, chunk: Chunk) -> None:
        """Write the whole state: every shard of this log, all ids that are known, the watermark.
        What is read afterwards begins here. Raises like `append`; to be called again then."""
        if chunk.shards.keys() != self._shards:
            raise InvariantViolated(
                f"a snapshot of {self._logs.folder} has shards {sorted(chunk.shards)}, but the log "
                f"has {sorted(self._shards)}"
            )
        self._writer.settle()
        assert self._writer.doubtful is None, "a snapshot is of what is durable"
        start, before = self._writer.last + 1, self._size
        assert self._whole is None or self._whole < start, "snapshots follow each other"
        # As much is behind the last whole snapshot until this one is complete: one that fails is
        # still wanted.
        self._size = RecoveryCost(0, before.since)
        content = chunk
        for part, last in _parts(chunk):
            self._append_part(content, part, start, last)
            content = Chunk()
        # Not before its last part is durable: `collect` deletes all that is before a whole
        # snapshot.
        assert self._writer.last >= start, "a snapshot has a part at least"
        self._whole = start
        self._size.since = 0

    def collect(self) -> None:
        """Delete what no reader needs: own chunks before the last snapshot, and older logs
        all of whose shards have a snapshot in this version. Call it after `snapshot`, from any
        thread; a failure is logged, and the next call tries again."""
        if self._whole is not None:
            collect(self._logs, self._key, self._whole)

    def _append_part(self, chunk: Chunk, part: list[ShardSection], start: int, last: bool) -> None:
        def encoded(seq: int) -> bytes:
            return self._encoded(
                chunk, ChunkFrame(StateChunkKind.SNAPSHOT, seq, start=start, last=last), part
            )

        self._writer.append(part, encoded)

    def _encoded(self, chunk: Chunk, frame: ChunkFrame, sections: list[ShardSection]) -> bytes:
        data = encode_chunk(self._logs.folder, self._key, frame, chunk, sections)
        self._size.add(frame.kind, len(data), sum(section.values for section in sections))
        return data


def _parts(chunk: Chunk) -> Iterator[tuple[list[ShardSection], bool]]:
    """The shards of a snapshot in parts of some size, and whether it is the last one."""
    part: list[ShardSection] = []
    size = 0
    for number, change in chunk.shards.items():
        for section in sections_of((number, piece) for piece in _slices(change)):
            part.append(section)
            size += section.size_bytes
            if size >= PART_BYTES:
                yield part, False
                part, size = [], 0
    yield part, True


def _slices(change: ShardChange) -> Iterator[ShardChange]:
    """The change, its records in slices."""
    part: list[Record] = []
    values = 0
    for record in change.records:
        part.append(record)
        values += _weight(record)
        if values >= _SLICE_VALUES:
            yield replace(change, records=part)
            change = ShardChange(settled=change.settled, closed=change.closed)
            part, values = [], 0
    yield replace(change, records=part)


def _weight(record: Record) -> int:
    """About how many values a record has, going by its first state."""
    if isinstance(record, PutEntries):
        return len(record.entries)
    if not isinstance(record, SetStates) or not record.states:
        return _OTHERS
    first = record.states[0]
    return _OTHERS - 1 + len(record.states) * (len(first) if type(first) in (list, bytes) else 1)


class LogCollector:
    """Not thread-safe. One collection at a time."""

    def __init__(
        self, log: StateLog, background: Callable[[Callable[[], None]], Future[None]]
    ) -> None:
        """`background` runs work on another thread."""
        self._log = log
        self._background = background
        self._running: Future[None] | None = None

    def begin(self) -> None:
        """Begin to delete what no reader needs since the last snapshot, unless that is being done.

        Raises:
            StateError: the collection before this one has found a damaged chunk.
        """
        if self._running is not None:
            if not self._running.done():
                return
            self._running.result()
        self._running = self._background(self._log.collect)


def collect(logs: StateLogs, own: LogKey, start: int) -> None:
    """Mark the own snapshot that begins at `start`, then delete what it and those of the other
    peers of this version have made superfluous."""
    assert start > 0, "the first chunk says what the log is, and stays"
    store, folder = logs.store, logs.folder
    try:
        store.create(folder.mark(own, start), b"")
        listed = logs.list()
        with ThreadPoolExecutor(THREADS) as threads:
            reader = ReadAhead(store, folder, threads)
            list(threads.map(store.delete, reader.before(own, listed[own], start)))
            for key, log in _covered(reader, own.version, listed):
                last = reader.fence(key, log) if log.opened else log.last
                list(threads.map(store.delete, reader.before(key, log, last)))
                if log.opened:
                    store.delete(folder.end(key))
                    store.delete(folder.chunk(key, 0))
    except (Missing, KeyError):
        _logger.debug("%s: others are deleting too", folder.prefix)
    except StateError:
        raise
    except (Unavailable, UserError) as error:
        _logger.warning("state that is not needed any more stays for now: %s", error)


def _covered(
    reader: ReadAhead, version: int, logs: dict[LogKey, Listed]
) -> list[tuple[LogKey, Listed]]:
    """Older logs, of which more than the fence is there, all of whose shards have a snapshot in
    this version."""
    snapshots = [key for key, log in logs.items() if key.version == version and log.marks]
    older = {
        key: log
        for key, log in logs.items()
        if key.version < version and (len(log.sizes) > 1 or log.opened or log.marks)
    }
    opened = reader.opened([*snapshots, *(key for key, log in older.items() if log.opened)])
    covered = {shard for key in snapshots for shard in opened[key].frame.shards}
    return [
        (key, log)
        for key, log in sorted(older.items())
        if not log.opened or covered.issuperset(opened[key].frame.shards)
    ]
