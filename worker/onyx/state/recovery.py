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
(`storage.fenced_log`), and the log of commands in which version the job was ready last: all logs of
that version were there then, and whoever finds none for a shard would begin it anew.

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

import msgspec
import numpy as np
from msgspec import field

from onyx.errors import Fenced
from onyx.flow.batch import U64
from onyx.ids import NO_POSITION
from onyx.settings import StateSettings
from onyx.state.chunks import (
    Base,
    Chunk,
    ChunkFrame,
    ChunkReader,
    StateChunkKind,
    Watermark,
    encode_chunk,
    merged,
)
from onyx.state.local.scratch import keep_of
from onyx.state.log import StateLog
from onyx.state.names import LogKey, TaskFolder
from onyx.state.reading import THREADS, ReadAhead, StateLogs
from onyx.state.shard_states import GatheredState, ShardState
from onyx.storage.fenced_log import Listed, Missing
from onyx.storage.interface import BlobStore

__all__ = ["CarriedState", "Progress", "RecoveredState", "ShardState", "read_state", "recover"]

Progress = Callable[[int, int], None]
"""Called with bytes read so far and bytes to read, on the thread that recovers."""


class CarriedState(msgspec.Struct, frozen=True):
    """The state of shards that comes from the old job."""

    shards: Mapping[int, ShardState]
    """By number; shards without state are left out."""
    roots: U64
    ids: U64
    watermark: Watermark | None


_EMPTY = np.empty(0, dtype=np.uint64)
NOTHING = CarriedState({}, _EMPTY, _EMPTY, None)
CarryOver = Callable[[frozenset[int]], CarriedState]


class RecoveredState(msgspec.Struct, frozen=True):
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
    logs: int = 0
    """How many logs were read."""
    values: int = 0
    """How many values of them count."""


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
) -> RecoveredState:
    """Fence the logs of older allocation versions, read what they say of these shards, and open
    the log of this version and rank. Blocks. To be repeated as it is when it fails.

    Args:
        ready: the newest version in which the job was ready.

    Raises:
        Fenced: a newer version has begun.
        StateError: a chunk is damaged, missing or foreign.
        Unavailable, UserError: as everything of the store.
    """
    own, wanted = LogKey(version, rank), frozenset(shards)
    # Of a version newer than its own a peer knows only that it comes too late.
    ready = ready if ready <= version else NO_POSITION
    with ThreadPoolExecutor(THREADS, "onyx-state") as threads:
        reader = ReadAhead(store, TaskFolder(job, task), threads, progress, keep_of(settings))
        return reader.steadily(
            lambda logs: _Recovery(reader, logs, wanted, ready, own, carry_over).run(settings)
        )


def read_state(
    store: BlobStore,
    job: str,
    task: str,
    shards: Iterable[int],
    progress: Progress = lambda done, total: None,
    ready: int = NO_POSITION,
    fences: bool = True,
) -> GatheredState:
    """Read what the logs of a job say of these shards. Other arguments and errors are those of
    `recover`.

    Args:
        fences: whether they are ended first, as of a job that has ended; else they are left as they
            are, and each shard is as of a moment since the call.
    """
    wanted = frozenset(shards)
    with ThreadPoolExecutor(THREADS, "onyx-state") as threads:
        reader = ReadAhead(store, TaskFolder(job, task), threads, progress)
        return reader.steadily(
            lambda logs: _Recovery(reader, logs, wanted, ready, fences=fences).read()
        )


_AFTER_ALL = LogKey((1 << 63) - 1, 0)
"""No allocation version is as high."""


class _Source(msgspec.Struct, frozen=True):
    """A log that shards come from."""

    key: LogKey
    shards: frozenset[int]
    opened: ChunkReader
    end: int
    """Number after its last chunk that counts."""


class _Recovery(msgspec.Struct):
    """One attempt, by one listing."""

    _reader: ReadAhead
    _logs: dict[LogKey, Listed]
    _shards: frozenset[int]
    _ready: int
    _own: LogKey = _AFTER_ALL
    _carry_over: CarryOver | None = None
    fences: bool = True
    """Whether the logs that are read are ended, so that nothing comes behind what was."""
    _bases: list[Base] = field(default_factory=list)
    _missing: frozenset[int] = frozenset()
    """Shards that no log has, once that is known."""
    _read: int = 0
    """How many logs were read."""

    @property
    def _folder(self) -> TaskFolder:
        return self._reader.folder

    def run(self, settings: StateSettings) -> RecoveredState:
        """
        Raises:
            Missing: the listing is out of date.
            Otherwise as `recover`.
        """
        newest = max((key.version for key, log in self._logs.items() if log.sizes), default=0)
        if newest > self._own.version:
            raise self._fenced(f"version {newest} has begun")
        begun = self._begun
        found = self.read()
        assert found.shards.keys() == self._shards, "all that was asked for is known, or new"
        carries_over = self._carry_over is not None and bool(self._missing)
        # Only when all is read: from here on newer versions look for these shards in this log.
        if begun is None:
            self._open(found, carries_over)
        last = 0 if begun is None else begun.last
        roots, ids = found.applied()
        logs = StateLogs(self._reader.store, self._folder)
        log = StateLog(logs, self._own, self._shards, last, found.size, settings)
        if carries_over:
            whole = {number: shard.change() for number, shard in found.shards.items()}
            log.snapshot(Chunk(whole, roots, ids, watermark=found.watermark))
            # Last, as it makes the log count (`_counts`): until then the shards are those of the
            # old job, and a recovery that finds the log without its mark reads them there again.
            logs.store.create(self._folder.mark(self._own, last + 1), b"")
        values = found.size.values
        return RecoveredState(log, found.shards, roots, ids, found.watermark, self._read, values)

    def read(self) -> GatheredState:
        """What is known of the shards. Raises like `run`."""
        begun = self._begun
        sources = self._own_again(begun) if begun else self._fenced_sources()
        self._missing = self._shards.difference(*(source.shards for source in sources))
        had = sum(len(source.shards) for source in sources)
        assert had + len(self._missing) == len(self._shards), "a shard comes from one log, or none"
        self._reader.expect(sum(self._size_bytes(source) for source in sources))
        gathered = [self._gather(source) for source in sources]
        self._read = len(sources)
        found = GatheredState.of(self._shards)
        watermarks = [each.watermark for each in gathered]
        if self._carry_over is not None and self._missing:
            carried = self._carry_over(self._missing)
            found.begin(carried.shards, carried.roots, carried.ids)
            watermarks.append(carried.watermark)
        # Older logs first: what a younger one says is about what these have left.
        for base in self._behind(sources, gathered):
            assert base.version < self._own.version, "what is behind is older"
            found.absorb(self._gather_base(base))
            self._read += 1
        for each in gathered:
            found.absorb(each)
        # The lowest, or none if a log had none: what one peer had passed, another may still expect.
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
        if self._reader.end(self._own, log) in log.sizes:
            raise self._fenced("a newer version has taken over")
        if not _counts(opened, log):
            return self._fenced_sources()
        return [_Source(self._own, self._shards, opened, log.last + 1)]

    def _fenced_sources(self) -> list[_Source]:
        """For each shard the newest log that has it; new shards have none."""
        older = {
            key: log
            for key, log in self._logs.items()
            if key.version < self._own.version and (log.opened or log.noted)
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
            wanted = {key: older[key] for key in opened if shards[key] or newest}
            found = self._reader.ends(wanted, self.fences)
            sources += [
                _Source(key, frozenset(shards[key]), opened[key], end) for key, end in found.items()
            ]
            missing.difference_update(*shards.values())
            if not missing:
                break
        if missing and self._ready != NO_POSITION:
            had = f"which allocation version {self._ready} had in {self._folder.prefix}"
            raise self._reader.lost(f"the logs of shards {sorted(missing)} are gone, {had}")
        if missing and any(log.sizes and not log.opened for log in self._logs.values()):
            raise self._reader.lost(f"shards {sorted(missing)} are in no log any more")
        return [source for source in sources if source.shards]

    def _opened(self, keys: Iterable[LogKey]) -> dict[LogKey, ChunkReader]:
        """The first chunks of those logs that have one."""
        logs = {key: self._logs[key] for key in keys}
        opened = self._reader.opened(key for key, log in logs.items() if log.opened)
        for key, log in logs.items():
            self._reader.check_begun(key, log)
        for key, each in opened.items():
            if key.version == self._ready and not _counts(each, logs[key]):
                raise self._reader.unmarked(key, logs[key])
        return opened

    def _fenced(self, why: str) -> Fenced:
        return Fenced(
            f"job {self._folder.job!r}, task {self._folder.task!r}: no state for allocation "
            f"version {self._own.version}, because {why}"
        )

    def _gather(self, source: _Source) -> GatheredState:
        """What a log itself says of its shards."""
        log = self._logs[source.key]
        found = GatheredState.of(source.shards)
        found.watermark = source.opened.watermark
        if log.first > 1 and not log.marks:
            raise self._reader.unmarked(source.key, log)
        for chunk in self._reader.chunks(source.key, _start(log), source.end, log):
            found.take(chunk)
        if found.first < source.end:
            shards = tuple(sorted(source.shards))
            self._bases.append(Base(*source.key, shards, found.first, source.end))
        return found

    def _behind(self, sources: list[_Source], gathered: list[GatheredState]) -> tuple[Base, ...]:
        """The older logs that are needed because a log has no whole snapshot, oldest first."""
        return merged(
            Base(*base.key, tuple(mine), base.first, base.end)
            for source, found in zip(sources, gathered, strict=True)
            for base in source.opened.frame.bases
            if not found.whole and (mine := source.shards.intersection(base.shards))
        )

    def _gather_base(self, base: Base) -> GatheredState:
        found = GatheredState.of(base.shards)
        log = self._logs.get(base.key, Listed())
        for chunk in self._reader.chunks(base.key, base.first, base.end, log):
            found.take(chunk)
        self._bases.append(base)
        return found

    def _size_bytes(self, source: _Source) -> int:
        log = self._logs[source.key]
        parts = [(log, _start(log), source.end)]
        if not log.marks:
            parts += [
                (self._logs.get(base.key, Listed()), base.first, base.end)
                for base in source.opened.frame.bases
                if source.shards.intersection(base.shards)
            ]
        return sum(
            size
            for log, first, end in parts
            for seq, size in log.sizes.items()
            if first <= seq < end
        )

    def _open(self, found: GatheredState, carries_over: bool) -> None:
        shards, bases = tuple(sorted(self._shards)), merged(self._bases)
        frame = ChunkFrame(StateChunkKind.OPEN, 0, shards, bases, carries_over=carries_over)
        chunk = Chunk(watermark=found.watermark)
        data = encode_chunk(self._folder, self._own, frame, chunk, ())
        if not self._reader.begin(self._own, data):
            # An earlier attempt of this peer opened it otherwise.
            raise Missing(self._folder.chunk(self._own, 0))


def _start(log: Listed) -> int:
    """Where reading begins."""
    return log.marks[-1] if log.marks else 1


def _counts(opened: ChunkReader, log: Listed) -> bool:
    """Whether a log has all that its first chunk says."""
    return not opened.frame.carries_over or bool(log.marks)
