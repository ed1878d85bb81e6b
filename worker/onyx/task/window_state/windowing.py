"""The state of one windowed task on one peer, in one allocation version, and how it gets durable.

Invariant: three things are never durable apart: that a segment has been applied, what it changed,
and what a trigger emitted because of it. They go into one chunk of the state log. Only when the
chunk is durable are the segments acked and the emissions sent. Meanwhile the task goes on with the
next batches; one chunk is on its way at a time, so chunks grow with the load.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from onyx.errors import Fenced, Unavailable
from onyx.flow.batch import U64, Batch, Segment
from onyx.ledger.applied import Applied, Mask
from onyx.ledger.lineage import any_retried, fold, without_attempts
from onyx.program.trigger_calls import TriggerCalls
from onyx.seams import Clock
from onyx.settings import StateSettings
from onyx.state.chunks import Chunk, ShardChange
from onyx.state.log import StateLog
from onyx.state.recovery import Recovered
from onyx.task.window_state.chunks import (
    NO_COLUMNS,
    ChunkPace,
    Columns,
    Taken,
    Whole,
    emissions_of,
    restored,
    stored,
)
from onyx.task.window_state.emissions import Emissions
from onyx.windows.firing import Pages
from onyx.windows.groups import Shards
from onyx.windows.task_windows import TaskWindows
from onyx.windows.uniqueness import UniqueKeys
from onyx.windows.watermarks import Mark

logger = logging.getLogger("onyx.task")

RETRY_INTERVAL_S = 1.0
"""Between two attempts to write a chunk."""


@dataclass(slots=True)
class Moment:
    """What fires at one moment, page by page."""

    runs: Pages
    through: Callable[[], None]
    """To be called at the end."""
    since_s: float


@dataclass(slots=True)
class _Append:
    """A chunk on its way, and what waits for it to be durable."""

    work: Callable[[], None]
    future: Future[None]
    values: list[Columns]
    """Roots and values to be acked then."""
    emitted: Taken
    settled: dict[int, int]
    """By shard, what nobody sends again then."""


class Windowing:
    """Not thread-safe; the log is written on a thread of the pool, one chunk at a time."""

    def __init__(
        self,
        windows: TaskWindows,
        shards: Shards,
        emissions: Emissions,
        calls: TriggerCalls,
        recovered: Recovered,
        exactly_once: bool,
        background: Callable[[Callable[[], None]], Future[None]],
        clock: Clock,
        settings: StateSettings,
    ) -> None:
        self.windows = windows
        self.clock = clock
        self.settings = settings
        self.shard_of = shards
        self.emissions = emissions
        self.calls = calls
        self.shards = sorted(recovered.shards)
        self.closed = {n for n, state in recovered.shards.items() if state.closed}
        """Shards that have fired for the last time."""
        self.firing: Moment | None = None
        """What fires at one moment and is not through."""
        self.timers_from_s = 0.0
        """No timer fires before: after several pages there is as long for reading as they took."""
        self.ended = False
        """Everything has fired for the last time, and arrived."""
        self._log: StateLog = recovered.log
        self._background = background
        self._applied = Applied(recovered.roots, recovered.ids) if exactly_once else None
        if self._applied is not None:
            self._applied.rewired()
        self._unique: dict[int, UniqueKeys] = {}
        self._watermark = recovered.watermark
        self._advanced_to: int | None = None
        self._columns: list[Columns] = []
        self._forgotten: dict[int, int] = {}
        self._newly_closed: set[int] = set()
        self._values: list[Columns] = []
        self._pace = ChunkPace(clock, settings)
        self.obstacle = ""
        """Why the last chunk could not be written yet."""
        self._appending: _Append | None = None
        self._try_again_s = 0.0
        self._marks: deque[tuple[int, Mark]] = deque()
        """Where event time was when so many emissions had been added."""
        self._settled: dict[int, int] = {}
        self._fenced = False
        """Another peer has fenced this log and taken over: nothing here counts any more."""
        self._restore(recovered)

    # --- while a batch is worked on -------------------------------------------------------------

    def fresh(self, batch: Batch, withdrawn: Sequence[int]) -> Mask | None:
        """Which segments have not been applied yet; from now on they count as applied. None: all
        of them.

        Args:
            withdrawn: segments that are not to be applied.
        """
        news = np.ones(len(batch), dtype=np.bool_)
        news[list(withdrawn)] = False
        if self._applied is not None and batch.roots is not None and batch.ids is not None:
            news &= ~self._applied.known(batch.roots, batch.ids)
            if news.all():
                self._apply(batch.roots, batch.ids)
            else:
                self._apply(batch.roots[news], batch.ids[news])
        return None if news.all() else news

    def first_seen(self, shards: Sequence[int], values: Sequence[Any]) -> list[bool]:
        """By the task's uniqueness key: for each segment, with its shard, whether it is new."""
        self.changed(len(values))
        found = [False] * len(values)
        indices: dict[int, list[int]] = {}
        for index, shard in enumerate(shards):
            indices.setdefault(shard, []).append(index)
        for shard, mine in indices.items():
            if shard not in self._unique:
                self._unique[shard] = UniqueKeys()
            new = self._unique[shard].first_seen([values[index] for index in mine])
            for index, is_new in zip(mine, new, strict=True):
                found[index] = is_new
        return found

    def withhold(self, roots: U64, values: U64) -> None:
        """Ack these when everything so far is durable."""
        if len(roots):
            self._values.append(fold(roots, values))
            self.changed(len(roots))

    def waiting_roots(self) -> list[U64]:
        """The roots of what is withheld; from any thread."""
        values, appending = tuple(self._values), self._appending
        return [roots for roots, _ in (*values, *(appending.values if appending else ()))]

    def emit(self, shard: int, segments: Sequence[Segment], child: str | None = None) -> None:
        """Send these when everything so far is durable."""
        self.emissions.add(shard, emissions_of(segments, child))
        self.changed(len(segments))

    def advance(self, watermark: int) -> Pages:
        """What fires because the watermark of the task has risen to this, if it has."""
        if watermark == self._advanced_to:
            return iter(())
        self._advanced_to = watermark
        if self._watermark is None or watermark > self._watermark:
            self._watermark = watermark
        self.changed(1)
        return self.windows.advance(watermark)

    def release(self, mark: Mark) -> Mark | None:
        """How far event time has come for those downstream: as far as all is sent that was emitted
        until then. None: no further.

        Args:
            mark: where the task is, all that fires because of it included.
        """
        if not self._marks or self._marks[-1][1] != mark:
            self._marks.append((self.emissions.added, mark))
        released = None
        while self._marks and self._marks[0][0] <= self.emissions.sent_through:
            released = self._marks.popleft()[1]
        return released

    def take_settled(self) -> dict[int, int]:
        """By shard, positions of emissions below which nothing is sent again, whoever takes over;
        those that have risen."""
        settled, self._settled = self._settled, {}
        return settled

    def forget(self, frontiers: dict[int, int]) -> None:
        """Nothing below these positions of their partitions comes again."""
        if self._applied is not None and frontiers:
            self._applied.forget(frontiers)
            self._forgotten.update(frontiers)

    def close(self, shard: int) -> None:
        """It has fired for the last time."""
        self.closed.add(shard)
        self._newly_closed.add(shard)
        self.changed(1)

    # --- between batches ------------------------------------------------------------------------

    def take_durable(self) -> list[Columns]:
        """What may be acked now. Raises what appending a chunk has raised."""
        appending = self._appending
        if appending is None or not appending.future.done() or self._fenced:
            return []
        try:
            appending.future.result()
        except Fenced:
            self._fenced = True
            return []
        except Unavailable as error:
            self._append_again(appending, error)
            return []
        self._appending, self.obstacle = None, ""
        self.emissions.release(appending.emitted)
        self._settled |= appending.settled
        return appending.values

    def cut(self, idle: bool) -> bool:
        """Begin to write a chunk if one is due and none is on its way; True when one was begun. A
        page of what fires at one moment is due at once."""
        if self._appending is not None or not self._pace.due(idle, self.firing is not None):
            return False
        self._pace.begun()
        emitted, settled = self.emissions.take_fresh(), self.emissions.take_settled()
        whole = self._log.wants_snapshot
        chunk = self._snapshot(emitted) if whole else self._changes(emitted, settled)
        write = self._write_snapshot if whole else self._log.append
        values, self._values = self._values, []
        files = self.windows.take_files()

        def work() -> None:
            for each in files:
                each.write()
            write(chunk)
            for each in files:
                each.remove()

        self._appending = _Append(work, self._background(work), values, emitted, settled)
        return True

    @property
    def ready_to_fire(self) -> bool:
        """Whether there is room for more of what fires at one moment: the last page is on its way
        to the log, and not too much waits to arrive."""
        return self._pace.nothing_waits and not self.emissions.full

    @property
    def durable(self) -> bool:
        """Whether nothing waits to be written."""
        return self._appending is None and self._pace.nothing_waits

    def _append_again(self, appending: _Append, error: Unavailable) -> None:
        self.obstacle = str(error)
        now_s = self.clock.monotonic_s()
        if now_s >= self._try_again_s:
            logger.warning("the state log cannot be written, trying again: %s", error)
            self._try_again_s = now_s + RETRY_INTERVAL_S
            appending.future = self._background(appending.work)

    # --- chunks ---------------------------------------------------------------------------------

    def _changes(self, emitted: Taken, settled: dict[int, int]) -> Chunk:
        records = self.windows.take_changes()
        keys = {shard: news for shard, each in self._unique.items() if (news := each.take_news())}
        closed, self._newly_closed = self._newly_closed, set()
        forgotten, self._forgotten = self._forgotten, {}
        roots, ids = self._take_columns()
        return Chunk(
            shards={
                shard: ShardChange(
                    records=records.get(shard, []),
                    emitted=stored(emitted.get(shard, ())),
                    settled=settled.get(shard, 0),
                    closed=shard in closed,
                    keys=keys.get(shard, []),
                )
                for shard in sorted({*records, *emitted, *settled, *keys, *closed})
            },
            roots=roots,
            ids=ids,
            forgotten=forgotten,
            watermark=self._watermark,
        )

    def _snapshot(self, new: Taken) -> Chunk:
        """Everything, what is new since the last chunk included."""
        self.windows.take_changes()
        self._take_columns()
        self._newly_closed, self._forgotten = set(), {}
        for each in self._unique.values():
            each.take_news()
        shards = {}
        for shard in self.shards:
            settled, emitted = self.emissions.pending(shard)
            shards[shard] = ShardChange(
                emitted=stored([*emitted, *new.get(shard, ())]),
                settled=settled,
                closed=shard in self.closed,
                keys=self._unique[shard].snapshot() if shard in self._unique else [],
            )
        columns = self._applied.columns() if self._applied is not None else (NO_COLUMNS, NO_COLUMNS)
        whole = Whole(shards, self.windows.freeze(self.shards))
        return Chunk(whole, *columns, watermark=self._watermark)

    def _write_snapshot(self, chunk: Chunk) -> None:
        self._log.snapshot(chunk)
        self._log.collect()

    def _take_columns(self) -> Columns:
        columns, self._columns = self._columns, []
        if not columns:
            return NO_COLUMNS, NO_COLUMNS
        parts, ids = zip(*columns, strict=True)
        roots = np.concatenate(parts)
        return without_attempts(roots) if any_retried(roots) else roots, np.concatenate(ids)

    def _apply(self, roots: U64, ids: U64) -> None:
        assert self._applied is not None
        if len(roots):
            self._applied.add(roots, ids)
            self._columns.append((roots, ids))

    def changed(self, segments: int) -> None:
        """So many segments, or firings, have changed the state."""
        self._pace.changed(segments)

    def _restore(self, recovered: Recovered) -> None:
        for shard, state in recovered.shards.items():
            self.windows.restore(shard, [])  # without state as well: its watermark is kept
            for records in state.records():
                self.windows.restore(shard, records)
            self.emissions.restore(shard, state.settled, map(restored, state.emitted))
            if state.keys:
                self._unique[shard] = UniqueKeys()
                self._unique[shard].restore(state.keys)
