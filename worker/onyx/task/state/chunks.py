"""Chunks of a windowed task: when one is due, and the form of what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from onyx.base.runs import Numbers
from onyx.base.seams import Clock
from onyx.keystate.records import Record
from onyx.settings import StateSettings
from onyx.state.chunks import EmittedRun, ShardChange
from onyx.task.state.runs import Placed

Columns = tuple[Numbers, Numbers]
"""Roots, and ids or values."""
NO_COLUMNS = np.empty(0, dtype=np.uint64)
SETTLED_S = 2.0
"""After which the log says which emissions are complete, though nothing else changes: whoever goes
on need not send them again, and a job on Spark cannot."""
QUIET_S = 0.003
"""Without anything to read for so long, an input may be waiting for acks, or be at its end."""


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
        """So many segments, or firings, have changed the state."""
        self._gathered += segments
        if self._due_s is None:
            self._due_s = self._clock.monotonic_s() + self._settings.chunk_interval_s

    def settled(self) -> None:
        """Emissions are complete of which the log does not say that."""
        if self._settle_s is None:
            self._settle_s = self._clock.monotonic_s() + SETTLED_S

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
        return now_s >= self._due_s or (idle and self._rests(now_s))

    def begun(self, rest_s: float) -> None:
        """A chunk with all changes was begun, and the next one has time for as long."""
        now_s = self._clock.monotonic_s()
        self._not_before_s = now_s + rest_s
        self._rested_s = now_s + self._settings.chunk_interval_s
        self._gathered = self._seen = 0
        self._due_s = self._settle_s = None

    def _rests(self, now_s: float) -> bool:
        """Whether an idle moment is more than one between two batches."""
        if self._seen != self._gathered:
            self._seen, self._quiet_s = self._gathered, now_s
        return now_s >= min(self._rested_s, self._quiet_s + QUIET_S)


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
