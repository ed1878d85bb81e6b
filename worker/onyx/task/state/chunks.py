"""Chunks of a task with state: when one is due, the form of what is in it, and the one that is on
its way to the state log, with what waits for it to be durable.

One is on its way at a time: while it is written the task goes on, so chunks grow with the load.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from onyx.base.runs import Numbers
from onyx.base.seams import Clock
from onyx.errors import Fenced, Unavailable
from onyx.keystate.records import Record, StateFiles
from onyx.settings import StateSettings
from onyx.state.chunks import Chunk, EmittedRun, ShardChange
from onyx.state.log import LogCollector, StateLog
from onyx.task.state.emissions import Placed, PlacedRuns

logger = logging.getLogger("onyx.task")

Columns = tuple[Numbers, Numbers]
"""Roots, and ids or values."""

NO_COLUMNS = np.empty(0, dtype=np.uint64)

SETTLED_S = 2.0
"""After which the log says which emissions are complete, though nothing else changes: whoever goes
on need not send them again, and a job on Spark cannot."""

QUIET_S = 0.003
"""Without anything to read for so long, an input may be waiting for acks, or be at its end."""

RETRY_INTERVAL_S = 1.0
"""Between two attempts to write a chunk."""


class ChunkPace:
    """When the changes since the last chunk are to be written.

    What comes now and then is written at once. Under load a task is idle for a moment after each
    batch, and chunks that are cut then cost more than the windows: all states that a few batches
    have changed, and a file. So an idle moment counts only after `QUIET_S`, or
    `chunk_interval_s` after the last chunk began.
    """

    def __init__(self, clock: Clock, settings: StateSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._gathered = 0
        self._due_s: float | None = None
        self._seen = 0
        """How much was gathered when an idle moment was seen last."""
        self._quiet_s = 0.0
        """When such a moment was seen first with as much."""
        self._rested_s = 0.0
        self._not_before_s = 0.0
        self._settle_s: float | None = None

    @property
    def nothing_waits(self) -> bool:
        """Whether nothing has changed since the last chunk."""
        return self._due_s is None

    def changed(self, segments: int) -> None:
        """Note that so many segments, or firings, have changed the state."""
        self._gathered += segments
        if self._due_s is None:
            self._due_s = self._clock.monotonic_s() + self._settings.chunk_interval_s

    def settled(self) -> None:
        """Emissions are complete of which the log does not say that."""
        if self._settle_s is None:
            self._settle_s = self._clock.monotonic_s() + SETTLED_S

    def rests(self) -> bool:
        """Whether there is nothing that the log does not say. What there is becomes due."""
        if self._settle_s is not None:
            self._settle_s = self._clock.monotonic_s()
        return self._due_s is None and self._settle_s is None

    def due(self, idle: bool, at_once: bool) -> bool:
        """Whether a chunk is due.

        Args:
            idle: the task has nothing to read now.
            at_once: whatever has changed is.
        """
        if self._due_s is None:
            settles = self._settle_s
            return idle and settles is not None and self._clock.monotonic_s() >= settles
        if at_once or self._gathered >= self._settings.chunk_segments_max:
            return True
        now_s = self._clock.monotonic_s()
        if now_s < self._not_before_s:
            return False
        return now_s >= self._due_s or (idle and self._is_quiet(now_s))

    def begun(self, rest_s: float) -> None:
        """A chunk with all changes was begun, and the next one has time for as long."""
        now_s = self._clock.monotonic_s()
        self._not_before_s = now_s + rest_s
        self._rested_s = now_s + self._settings.chunk_interval_s
        self._gathered = self._seen = 0
        self._due_s = self._settle_s = None

    def _is_quiet(self, now_s: float) -> bool:
        """Whether an idle moment is more than one between two batches."""
        if self._seen != self._gathered:
            self._seen, self._quiet_s = self._gathered, now_s
        return now_s >= min(self._rested_s, self._quiet_s + QUIET_S)


# --- what is in a chunk -------------------------------------------------------------------------


class Whole(Mapping[int, ShardChange]):
    """A snapshot, of which only what is being written of a shard need be in memory."""

    def __init__(
        self,
        shards: dict[int, ShardChange],
        records: Callable[[int], Iterable[Record]],
        keys: Callable[[int], list[Any]],
    ) -> None:
        self._shards = shards
        self._records = records
        self._keys = keys

    def __getitem__(self, shard: int) -> ShardChange:
        records, keys = self._records(shard), self._keys(shard)
        return replace(self._shards[shard], records=records, keys=keys)

    def __iter__(self) -> Iterator[int]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)


def stored(emitted: Sequence[Placed]) -> list[EmittedRun]:
    """Runs with their positions, as chunks hold them."""
    return [EmittedRun(first, run.segments, run.child, run.encoded) for first, run in emitted]


# --- the chunk on its way -----------------------------------------------------------------------


class PendingChunk(msgspec.Struct):
    """A chunk on its way."""

    values: list[Columns]
    """Roots and values to be acked when it is durable."""
    emitted: PlacedRuns
    settled: dict[int, int]
    """Positions below which nobody sends emissions again then, by shard."""
    again: bool = False
    """Whether some of what it acks had been applied before."""
    unfinished: bool = False
    """Whether more is to be made of some of what it acks."""


class ChunkWriter:
    """Writes the chunks of one task, one at a time. Not thread-safe; the log is written on a thread
    of the pool."""

    def __init__(
        self,
        log: StateLog,
        background: Callable[[Callable[[], None]], Future[None]],
        clock: Clock,
    ) -> None:
        self._log = log
        self._background = background
        self._clock = clock
        self.obstacle = ""
        """Why the last chunk could not be written yet."""
        self.current: PendingChunk | None = None
        self._work: Callable[[], None]
        self._future: Future[None]
        self._whole = False
        """The chunk on its way is a snapshot."""
        self._collector = LogCollector(log, background)
        self._try_again_s = 0.0
        self._fenced = False
        """Another peer has fenced this log and taken over: nothing here counts any more."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the log, about; from any thread."""
        return self._log.size_bytes

    @property
    def wants_snapshot(self) -> bool:
        """Whether the next chunk is to hold the whole state."""
        return self._log.wants_snapshot

    def begin(self, chunk: Chunk, files: Sequence[StateFiles], pending: PendingChunk) -> None:
        """Begin to write a chunk.

        Args:
            files: that belong to it.
        """
        assert self.current is None, "one chunk after the other"
        whole = self.wants_snapshot
        write = self._log.snapshot if whole else self._log.append

        def work() -> None:
            # Whoever finds the chunk finds its files: they are whole before it names them, and
            # those that it makes superfluous go only when it says so.
            for each in files:
                each.write()
            write(chunk)
            for each in files:
                each.remove()

        self.current, self._work, self._future = pending, work, self._background(work)
        self._whole = whole

    def take_durable(self) -> PendingChunk | None:
        """The chunk that has become durable, once. Raises what appending a chunk has raised."""
        pending = self.current
        if pending is None or not self._future.done() or self._fenced:
            return None
        try:
            self._future.result()
        except Fenced:
            # `current` stays: no further chunk is begun, and nothing that waits is ever acked.
            self._fenced = True
            return None
        except Unavailable as error:
            self._again(error)
            return None
        self.current, self.obstacle = None, ""
        if self._whole:
            self._collector.begin()
        return pending

    def _again(self, error: Unavailable) -> None:
        self.obstacle = str(error)
        now_s = self._clock.monotonic_s()
        if now_s >= self._try_again_s:
            logger.warning("the state log cannot be written, trying again: %s", error)
            self._try_again_s = now_s + RETRY_INTERVAL_S
            # The very same work: a chunk that was written, and of which only the answer was lost,
            # is found to be there with the same bytes.
            self._future = self._background(self._work)
