"""All windows of one task on one peer, over the shards of state that the peer owns.

The windows of a task know nothing of each other: a batch goes to one after the other, and what they
fire is put in the order of the segments. Nothing here blocks or looks at a clock.

When a call raises, the state is between two batches and must be restored before it is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from onyx.errors import UserError
from onyx.flow.batch import Segments
from onyx.keystate.buckets import Holder, InMemory
from onyx.keystate.coded import Groups, Keyed, keyed
from onyx.keystate.extents import Extent, Number
from onyx.keystate.groups import Shards, only_shard
from onyx.keystate.pages import ROWS_PAGE_MAX
from onyx.keystate.records import Record, Records, StateFiles, StatesRecord, WindowRecord
from onyx.keystate.selection import EVERYTHING, Selection
from onyx.reports.measures import StateMeasures
from onyx.windows.arrays.joined_records import joined
from onyx.windows.compiled import CompiledWindows
from onyx.windows.firing import PENDING, AnyFiring, BatchOutcome, FiringPages
from onyx.windows.prepared import WindowInput, take
from onyx.windows.running import Make, RunningWindow
from onyx.windows.watermarks import NOTHING_SEEN
from onyx.windows.window import Window


class TaskWindows:
    """State of the windows of a task."""

    def __init__(
        self,
        compiled: CompiledWindows,
        shard_of: Callable[[Any], int],
        holder: Holder | None = None,
        page_max: int = ROWS_PAGE_MAX,
        make_elsewhere: Make | None = None,
    ) -> None:
        """
        Args:
            shard_of: gives for the user's value of a group key the shard of its state; a task that
                is not grouped has one group, None, in shard 0.
            holder: has the states; None: in memory.
            page_max: groups that fire at once, as rows; of others `FIRINGS_PAGE_MAX` at most do.
            make_elsewhere: makes windows with another engine than peers; None: all are the peers'.
        """
        self._holder = holder or InMemory()
        self._task = compiled.task
        self._grouped = compiled.grouped
        self._shards = Shards(shard_of if self._grouped else only_shard)
        if not self._grouped:
            self._shards.known[0] = None
        self._windows: dict[str, RunningWindow] = {}
        for each in compiled.windows:
            if each.window.engine == "peers" or make_elsewhere is None:
                window: RunningWindow = Window(
                    each, self._grouped, self._shards, self._holder, each.page_size(page_max)
                )
            else:
                window = make_elsewhere(each, self._grouped, self._shards)
            self._windows[each.window.id] = window
        self._watermark: Number = NOTHING_SEEN

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` is due next, in ms since the epoch; None when no timer runs."""
        due = [window.next_tick_ms() for window in self._windows.values()]
        return min((each for each in due if each is not None), default=None)

    def add(
        self,
        segments: Segments,
        groups: Keyed | None,
        now_ms: int,
        taken: Sequence[WindowInput] | None = None,
    ) -> BatchOutcome:
        """Take a batch.

        Args:
            groups: of its segments (`groups.hashable_keys`); None where not grouped.
            taken: what each window takes of it, if that has been found already (`prepared`).

        Raises:
            UserError: a segment has no coordinate or value that the window can use.
            UserFunctionError: a function of the user raised.
        """
        if not len(segments):
            return BatchOutcome([], [])
        keys = keyed(segments, groups)
        if not self._holder.in_memory and isinstance(keys, Groups) and keys.column is not None:
            # States on disk are looked for by shard: those of a column are computed together.
            self._shards.learn(keys.keys, self._shards.of_column(keys.column).tolist())
        fired: list[tuple[int, AnyFiring]] = []
        late: set[int] | None = None
        windows = self._windows.values()
        if taken is None:
            taken = [take(window.compiled, segments) for window in windows]
        for window, its in zip(windows, taken, strict=True):
            mine, late_here = window.add(segments, its, keys, now_ms)
            fired += mine
            late = set(late_here) if late is None else late & set(late_here)
        self._holder.trim()
        if len(self._windows) > 1:
            fired.sort(key=itemgetter(0))
        return BatchOutcome([firing for _, firing in fired], sorted(late or ()))

    def tick(self, now_ms: int) -> FiringPages:
        """Timers that are due fire."""
        return self._trimmed(window.tick(now_ms) for window in self._settled())

    def advance(self, watermark: Number) -> FiringPages:
        """The watermark of the task has risen: extents that it has passed fire."""
        if watermark <= self._watermark:
            return iter(())
        self._watermark = watermark
        return self._trimmed(window.advance(watermark) for window in self._settled())

    def complete(self, shards: Collection[int], now_ms: int) -> FiringPages:
        """The job ends for these shards: every extent fires once more."""
        return self._trimmed(window.complete(shards, now_ms) for window in self._settled())

    def _trimmed(self, windows: Iterable[FiringPages]) -> FiringPages:
        """Pages that have firings or are pending; between two of them no state is in use."""
        for run in chain.from_iterable(windows):
            self._holder.trim()
            if run or run is PENDING:
                yield run
        self._holder.trim()

    def take_changes(self) -> dict[int, list[Record]]:
        """What has changed since the last call, by shard."""
        records: Records = {}
        for window in self._settled():
            window.take_changes(records)
        return records

    def take_files(self) -> list[StateFiles]:
        """Files that belong to the changes taken last, to be written before their records are."""
        return [files for window in self._windows.values() for files in window.take_files()]

    @property
    def doing(self) -> str:
        """What is being computed elsewhere, in words; empty if nothing is."""
        return next(filter(None, (window.doing for window in self._windows.values())), "")

    def measures(self) -> StateMeasures:
        """What all windows have. From any thread."""
        each = (window.measures() for window in self._windows.values())
        return sum(each, start=StateMeasures())

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records of `snapshot` or `take_changes`, in order, to a shard.

        A peer restores every shard that it owns, if only with no records: the watermark is kept
        for all of them, those without state included.

        Raises:
            UserError: the state is of a window that the task does not have.
        """
        self._shards.known[shard] = None
        for record in joined(records):
            assert isinstance(record, WindowRecord), "the state log of a windowed task"
            self._found(record.window).restore(shard, record)
            self._holder.trim()

    def resume(self, watermark: Number) -> None:
        """The watermark was here when the state was recorded that has been restored: what it has
        passed has fired."""
        self._watermark = watermark
        for window in self._windows.values():
            assert isinstance(window, Window), "a query of Spark has all states in memory"
            window.resume(watermark)

    def merge(self, records: Sequence[StatesRecord]) -> None:
        """States of groups, folded elsewhere from other segments, are added to those here. Only of
        fixed, sliding and global windows, whose extents do not depend on segments."""
        for record in records:
            self._own(record).merge(record)
            self._holder.trim()

    def any_late(self, records: Sequence[StatesRecord]) -> bool:
        """Whether some of the segments of states that were folded elsewhere may be late."""
        return any(self._own(record).is_late(record) for record in records)

    def _own(self, record: StatesRecord) -> Window:
        window = self._found(record.window)
        assert isinstance(window, Window), "states in files are not merged"
        return window

    def snapshot(self, shard: int) -> list[Record]:
        """The whole state of a shard."""
        return self.snapshots([shard])[shard]

    def snapshots(self, shards: Collection[int]) -> dict[int, list[Record]]:
        """The whole state of several shards, in one pass over all."""
        snapshot = self._snapshot(shards)
        return {shard: snapshot(shard) for shard in shards}

    def freeze(self, shards: Collection[int]) -> Callable[[int], list[Record]]:
        """What gives the whole state of each of these shards as it is now: once, later, from any
        thread."""
        if self._holder.in_memory:
            return self.snapshots(shards).__getitem__
        return self._snapshot(shards)

    def _snapshot(self, shards: Collection[int]) -> Callable[[int], list[Record]]:
        windows, chosen = self._settled(), frozenset(shards)
        frozen = self._holder.freeze()
        parts = [window.snapshot(frozen, chosen) for window in windows]
        return lambda shard: [record for part in parts for record in part(shard)]

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to other peers now."""
        chosen = frozenset(shards)
        for window in self._settled():
            window.drop(chosen)
        self._shards.forget(chosen)

    rest_s = 0.0
    """Changes are noted when they are made."""

    def query(
        self, window_id: str, asked: Selection = EVERYTHING, extents_max: int | None = None
    ) -> list[Extent]:
        """Extents of a window.

        Args:
            extents_max: the first so many, in the order of their places; None: all, in any order.

        Raises:
            UserError: there is no such window.
        """
        return self._found(window_id).query(asked, extents_max)

    def look_up(self, window_id: str, keys: Sequence[Any]) -> list[list[Any]]:
        """For each group (`groups.hashable_key`) a list with its state, which is empty if it has
        none. Raises UserError: there is no such window."""
        found = self._found(window_id).look_up(keys)
        self._holder.trim()
        return found

    def _found(self, window_id: str) -> RunningWindow:
        window = self._windows.get(window_id)
        if window is None:
            raise UserError(
                f"task {self._task} has no window {window_id!r}, but {', '.join(self._windows)}"
            )
        window.settle()
        return window

    def _settled(self) -> Collection[RunningWindow]:
        """All windows, with everything in their states that was added."""
        for window in self._windows.values():
            window.settle()
        return self._windows.values()
