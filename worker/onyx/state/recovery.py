"""Recover the state of shards from the logs of the peers that had them, and open a log for them.

A log says in its first chunk which shards it has and from which parts of older logs they come, so a
shard's history is found in the newest older log that has it. Order matters three times:

* Older logs are fenced before they are read. A chunk that a zombie (a process that was declared
  dead and still runs) created before the fence is read; none can come after it, so all readers see
  the same log.
* The newest log is read before those behind it: they are read only if it has no complete snapshot,
  because with one they may have been deleted.
* The own log is opened last, and the job is ready only when all logs of a version are open. So a
  log that was opened too late to be listed here has acknowledged nothing, and every log that has
  acknowledged something is found by all newer versions.

Files may be gone, by a wrong command or a copy of a part. A log says beside it how far it has come
(`storage.ends`), and the log of commands in which version the job was ready last: all logs of that
version were there then, and whoever finds none for a shard would begin it anew.

A job that upgrades another one starts with shards that none of its own logs has. `carry_over`
reads them from the old job, and they become a snapshot in the own log before that log is ready.
Until the mark of the snapshot is there, the log does not count, so the next recovery reads them
from the old job again.

Only logs of the newest older version, and those that the shards come from, are fenced: the peer
that opened a newer log has fenced all older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from onyx.errors import Fenced, StateError
from onyx.flow.batch import U64
from onyx.ids import NO_POSITION
from onyx.settings import StateSettings
from onyx.state.chunk_codec import Base, ChunkReader, Frame, Kind, encode_chunk, merged
from onyx.state.chunks import Chunk, Watermark
from onyx.state.gathering import Gathered
from onyx.state.local.spool import Keep, keep_of
from onyx.state.log import StateLog
from onyx.state.names import Listed, LogKey, TaskFolder, by_log
from onyx.state.reading import THREADS, ChunkMissing, Reader
from onyx.state.shard_state import ShardState
from onyx.storage import ends
from onyx.storage.interface import BlobStore
from onyx.structs import RESTORE

__all__ = ["CarriedOver", "Progress", "Recovered", "ShardState", "read_state", "recover"]

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with bytes read so far and bytes to read, on the thread that recovers."""


class CarriedOver(msgspec.Struct, frozen=True):
    """The state of shards that comes from the old job."""

    shards: Mapping[int, ShardState]
    """By number; shards without state are left out."""
    roots: U64
    ids: U64
    watermark: Watermark | None


CarryOver = Callable[[frozenset[int]], CarriedOver]


class Recovered(msgspec.Struct, frozen=True):
    """What is known, and where to write what comes."""

    log: StateLog
    """Open, and this peer's alone."""
    shards: Mapping[int, ShardState]
    """Every shard that was asked for, new ones empty."""
    roots: U64
    """The roots of the segments applied, attempt bits cleared; also some that other peers' shards
    have."""
    ids: U64
    watermark: Watermark | None
    """Lowest of the logs that the shards come from; None if one of them had none."""


def recover(
    store: BlobStore,
    job: str,
    task: str,
    version: int,
    rank: int,
    shards: Iterable[int],
    settings: StateSettings,
    progress: Progress = lambda done, total: None,
    carry_over: CarryOver | None = None,
    ready: int = NO_POSITION,
) -> Recovered:
    """Fence the logs of older allocation versions, read what they say of these shards, and open
    the log of this version and rank. Blocks. To be repeated as it is when it fails.

    Args:
        ready: the newest version in which the job was ready.

    Raises:
        Fenced: a newer version has begun.
        StateError: a chunk is damaged, missing or foreign.
        Unavailable, UserError: as everything of the store.
    """
    folder, own = TaskFolder(job, task), LogKey(version, rank)
    return _attempts(
        store,
        folder,
        progress,
        lambda reader, logs: _Recovery(
            store, folder, own, frozenset(shards), reader, logs, carry_over, ready
        ).run(settings),
        keep_of(settings),
    )


def read_state(
    store: BlobStore,
    job: str,
    task: str,
    shards: Iterable[int],
    progress: Progress = lambda done, total: None,
    ready: int = NO_POSITION,
) -> Gathered:
    """Fence the logs of a job that has ended, and read what they say of these shards. Arguments and
    errors are those of `recover`."""
    folder = TaskFolder(job, task)
    return _attempts(
        store,
        folder,
        progress,
        lambda reader, logs: _Recovery(
            store, folder, _AFTER_ALL, frozenset(shards), reader, logs, None, ready
        ).read(),
    )


def look(
    store: BlobStore, job: str, task: str, shards: Iterable[int], ready: int = NO_POSITION
) -> Gathered:
    """Read what the logs of a job say of these shards now, and leave them as they are. Each shard
    is as of a moment since the call. Arguments and errors are those of `recover`."""
    folder = TaskFolder(job, task)
    return _attempts(
        store,
        folder,
        lambda done, total: None,
        lambda reader, logs: _Recovery(
            store, folder, _AFTER_ALL, frozenset(shards), reader, logs, None, ready, fences=False
        ).read(),
    )


_AFTER_ALL = LogKey((1 << 63) - 1, 0)
"""No allocation version is as high."""


def _attempts(
    store: BlobStore,
    folder: TaskFolder,
    progress: Progress,
    attempt: Callable[[Reader, dict[LogKey, Listed]], T],
    keep: Keep = bytes,
) -> T:
    """List the logs and try, until what was listed is there."""
    before: dict[LogKey, Listed] | None = None
    with ThreadPoolExecutor(THREADS, "onyx-state") as threads:
        while True:
            logs = by_log(folder, store.list(folder.prefix))
            try:
                return attempt(Reader(store, folder, progress, threads, keep), logs)
            except ChunkMissing as error:
                if logs == before:
                    raise _lost(folder, f"{error} is gone") from error
            before = logs


class _Source(msgspec.Struct, frozen=True):
    """A log that shards come from."""

    key: LogKey
    shards: frozenset[int]
    opened: ChunkReader
    end: int
    """Number after its last chunk that counts."""


class _Recovery:
    """One attempt, by one listing."""

    def __init__(
        self,
        store: BlobStore,
        folder: TaskFolder,
        own: LogKey,
        shards: frozenset[int],
        reader: Reader,
        logs: dict[LogKey, Listed],
        carry_over: CarryOver | None,
        ready: int,
        fences: bool = True,
    ) -> None:
        """`fences`: end the logs that are read, so that nothing comes behind what was."""
        self._find_ends = reader.fences if fences else reader.ends
        self._store = store
        self._folder = folder
        self._own = own
        self._shards = shards
        self._reader = reader
        self._logs = logs
        self._carry_over = carry_over
        # Of a version newer than its own a peer knows only that it comes too late.
        self._ready = ready if ready <= own.version else NO_POSITION
        self._bases: list[Base] = []
        self._missing: frozenset[int] = frozenset()
        """Shards that no log has, once that is known."""

    def run(self, settings: StateSettings) -> Recovered:
        """
        Raises:
            ChunkMissing: the listing is out of date.
            Otherwise as `recover`.
        """
        newest = max((key.version for key, log in self._logs.items() if log.sizes), default=0)
        if newest > self._own.version:
            raise self._fenced(f"version {newest} has begun")
        begun = self._begun
        found = self.read()
        carries_over = self._carry_over is not None and bool(self._missing)
        if begun is None:
            self._open(found, carries_over)
        seq = 1 if begun is None else begun.last + 1
        roots, ids = found.applied()
        log = StateLog(
            self._store, self._folder, self._own, self._shards, seq, found.size, settings
        )
        if carries_over:
            whole = {number: shard.change() for number, shard in found.shards.items()}
            log.snapshot(Chunk(whole, roots, ids, watermark=found.watermark))
            # Last, as it makes the log count (`_counts`): until then the shards are those of the
            # old job, and a recovery that finds the log without its mark reads them there again.
            self._store.create(self._folder.mark(self._own, seq), b"")
        return Recovered(log, found.shards, roots, ids, found.watermark)

    def read(self) -> Gathered:
        """What is known of the shards. Raises like `run`."""
        begun = self._begun
        sources = self._own_again(begun) if begun else self._fenced_sources()
        self._missing = self._shards.difference(*(source.shards for source in sources))
        self._reader.expect(sum(self._size_bytes(source) for source in sources))
        gathered = [self._gather(source) for source in sources]
        found = Gathered.of(self._shards)
        watermarks = [each.watermark for each in gathered]
        if self._carry_over is not None and self._missing:
            carried = self._carry_over(self._missing)
            found.begin(carried.shards, carried.roots, carried.ids)
            watermarks.append(carried.watermark)
        # Older logs first: what a younger one says is about what these have left.
        for base in self._behind(sources, gathered):
            found.absorb(self._gather_base(base))
        for each in gathered:
            found.absorb(each)
        known = [each for each in watermarks if each is not None]
        found.watermark = min(known) if known and len(known) == len(watermarks) else None
        return found

    @property
    def _begun(self) -> Listed | None:
        """The own log, if it has its first chunk."""
        log = self._logs.get(self._own)
        return log if log is not None and log.opened else None

    def _own_again(self, log: Listed) -> list[_Source]:
        """An earlier attempt of this peer opened the log, and may have appended to it."""
        opened = self._opened([self._own])[self._own]
        if log.last > 0 and self._reader.one(self._own, log.last).frame.kind is Kind.FENCE:
            raise self._fenced("a newer version has taken over")
        self._reader.check_end(self._own, log)
        if not _counts(opened, log):
            return self._fenced_sources()
        return [_Source(self._own, self._shards, opened, log.last + 1)]

    def _fenced_sources(self) -> list[_Source]:
        """For each shard the newest log that has it; new shards have none."""
        older = {
            key: log
            for key, log in self._logs.items()
            if key.version < self._own.version and (log.opened or log.ends)
        }
        missing = set(self._shards)
        sources: list[_Source] = []
        for version in sorted({key.version for key in older}, reverse=True):
            if version < self._ready:
                break
            opened = self._opened([key for key in older if key.version == version])
            shards = {
                key: missing.intersection(each.frame.shards if _counts(each, older[key]) else ())
                for key, each in opened.items()
            }
            # All logs of the newest older version, also those that no shard of this peer comes
            # from: their writers must not go on beside this version. All older ones they have
            # fenced.
            newest = not sources
            found = self._find_ends({key: older[key] for key in opened if shards[key] or newest})
            sources += [
                _Source(key, frozenset(shards[key]), opened[key], end) for key, end in found.items()
            ]
            missing.difference_update(*shards.values())
            if not missing:
                break
        if missing and self._ready != NO_POSITION:
            had = f"which allocation version {self._ready} had in {self._folder.prefix}"
            raise _lost(self._folder, f"the logs of shards {sorted(missing)} are gone, {had}")
        if missing and any(log.sizes and not log.opened for log in self._logs.values()):
            raise _lost(self._folder, f"shards {sorted(missing)} are in no log any more")
        return [source for source in sources if source.shards]

    def _opened(self, keys: Iterable[LogKey]) -> dict[LogKey, ChunkReader]:
        """The first chunks of those logs that have one."""
        opened = self._reader.begun({key: self._logs[key] for key in keys})
        for key, each in opened.items():
            if key.version == self._ready and not _counts(each, self._logs[key]):
                raise ChunkMissing(self._reader.unmarked(key, self._logs[key]))
        return opened

    def _fenced(self, why: str) -> Fenced:
        return Fenced(
            f"job {self._folder.job!r}, task {self._folder.task!r}: no state for allocation "
            f"version {self._own.version}, because {why}"
        )

    def _gather(self, source: _Source) -> Gathered:
        """What a log itself says of its shards."""
        log = self._logs[source.key]
        found = Gathered.of(source.shards)
        found.watermark = source.opened.watermark
        if log.collected and not log.marks:
            raise ChunkMissing(self._reader.unmarked(source.key, log))
        for chunk in self._reader.chunks(source.key, log.start, source.end, log):
            found.take(chunk)
        if found.first < source.end:
            shards = tuple(sorted(source.shards))
            self._bases.append(Base(*source.key, shards, found.first, source.end))
        return found

    def _behind(self, sources: list[_Source], gathered: list[Gathered]) -> tuple[Base, ...]:
        """The older logs that are needed because a log has no whole snapshot, oldest first."""
        return merged(
            Base(*base.key, tuple(mine), base.first, base.end)
            for source, found in zip(sources, gathered, strict=True)
            for base in source.opened.frame.bases
            if not found.whole and (mine := source.shards.intersection(base.shards))
        )

    def _gather_base(self, base: Base) -> Gathered:
        found = Gathered.of(base.shards)
        log = self._logs.get(base.key, Listed())
        for chunk in self._reader.chunks(base.key, base.first, base.end, log):
            found.take(chunk)
        self._bases.append(base)
        return found

    def _size_bytes(self, source: _Source) -> int:
        log = self._logs[source.key]
        own = sum(size for seq, size in log.sizes.items() if log.start <= seq < source.end)
        if log.marks:
            return own
        return own + sum(
            size
            for base in source.opened.frame.bases
            if source.shards.intersection(base.shards)
            for seq, size in self._logs.get(base.key, Listed()).sizes.items()
            if base.first <= seq < base.end
        )

    def _open(self, found: Gathered, carries_over: bool) -> None:
        shards, bases = tuple(sorted(self._shards)), merged(self._bases)
        frame = Frame(Kind.OPEN, 0, shards, bases, carries_over=carries_over)
        chunk = Chunk(watermark=found.watermark)
        data = encode_chunk(self._folder, self._own, frame, chunk, ())
        name = self._folder.chunk(self._own, 0)
        ends.begin(self._store, self._folder.end(self._own))
        if not self._store.create(name, data):
            raise ChunkMissing(name)  # an earlier attempt of this peer opened it otherwise


def _counts(opened: ChunkReader, log: Listed) -> bool:
    """Whether a log has all that its first chunk says."""
    return not opened.frame.carries_over or bool(log.marks)


def _lost(folder: TaskFolder, what: str) -> StateError:
    return StateError(f"state of job {folder.job!r}, task {folder.task!r}: {what}; {RESTORE}")
