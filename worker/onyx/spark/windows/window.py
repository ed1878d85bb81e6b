"""A window of which Spark aggregates the groups. See docs/decisions/0039.

The peer has what is small: which files are the state of which extents, watermarks, timers, what has
fired. The values of groups are rows in files (`buffer`, `files`), and a firing is a stage over them
(`firings`). Everything else is as in `windows.window`: the same events, records and order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from onyx.errors import UserError
from onyx.flow.batch import Segment
from onyx.flow.columns.record_batch import Columns
from onyx.model.kinds import WINDOWS, aggregation_name
from onyx.spark.windows.buffer import Buffer
from onyx.spark.windows.firings import Reader, Spark, Stage
from onyx.spark.windows.holdings import Holdings
from onyx.spark.windows.late import without_late
from onyx.spark.windows.outcomes import THROUGH, Outcome, Restored
from onyx.spark.windows.part_files import Garbage, PartFiles
from onyx.spark.windows.plan import OPTIONAL, Plan
from onyx.spark.windows.spool import Spool, new_part
from onyx.spark.windows.states import native_of
from onyx.spark.windows.waiting import waiting
from onyx.windows.buckets import Frozen
from onyx.windows.coded import Keyed
from onyx.windows.compiled import CompiledWindow
from onyx.windows.firing import PENDING, EventType, Extent, Firing, Number, Pages
from onyx.windows.groups import Shards, group_value
from onyx.windows.prepared import Taken
from onyx.windows.records import (
    ClearExtent,
    Record,
    Records,
    SpooledEmitted,
    SpooledFired,
    SpooledPart,
    TimerDue,
    WatermarkReached,
    append,
)
from onyx.windows.running import Files
from onyx.windows.shard_watermarks import ShardWatermarks
from onyx.windows.triggers.timers import Timers
from onyx.windows.triggers.trigger import Trigger


class SparkWindow:
    """Implements `windows.running.RunningWindow`."""

    def __init__(
        self,
        compiled: CompiledWindow,
        grouped: bool,
        shards: Shards,
        folder: Spool,
        spark: Spark,
        page_max: int,
    ) -> None:
        """`page_max`: firings of one page."""
        window = compiled.window
        self.compiled = compiled
        self._declared = window
        self._id = window.id
        self._grouped = grouped
        self._shards = shards
        self._folder = folder
        self._native = native_of(compiled)
        kind = WINDOWS[window.type]
        self._overlapping = kind.overlapping
        self._buffer = Buffer(self._native, kind, shards)
        self._holdings = Holdings(window.id)
        self._waiting = waiting(compiled, self._holdings, self._buffer)
        self._assigner = self._waiting.assigner
        self._lateness = compiled.lateness if self._assigner.bounded else None
        self._watermarks = ShardWatermarks(window.id, False, compiled.lateness is not None, shards)
        self._triggers = {each.name: each for each in compiled.triggers}
        self._timers = Timers(window.id, compiled.triggers)
        self._changes: list[tuple[frozenset[int], Record]] = []
        self._new_files: list[PartFiles] = []
        self._files: list[PartFiles] = []
        """Being written."""
        self._outcomes: list[Outcome] = []
        self._restored = Restored()
        self._done: set[tuple[str, int]] = set()
        """Triggers and shards that have fired for the last time."""
        where = f"window {window.id} of task {window.task}"
        self._stage = Stage(where, spark, folder)
        self._reader = Reader(compiled.aggregation, self._assigner.bounds, folder, page_max)

    @property
    def stage(self) -> str:
        """What is being computed elsewhere, in words; empty if nothing is."""
        return self._stage.words

    # Events.

    def add(
        self, segments: Sequence[Segment] | Columns, taken: Taken, keys: Keyed, now_ms: int
    ) -> tuple[list[tuple[int, Firing]], list[int]]:
        """Take a batch: nothing fires; indices of late segments."""
        coordinates = () if taken.coordinates is None else taken.coordinates
        parts = self._assigner.split(coordinates, taken.ints)
        parts, late = without_late(
            parts, keys, self._lateness, self._assigner, self._watermarks, self._shards
        )
        self._waiting.came(parts)
        shards = self._buffer.add(parts, keys, taken)
        if self._timers:
            self._timers.start(shards, now_ms)
        return [], late

    def settle(self) -> None:
        """Nothing has to be."""

    def advance(self, watermark: Number) -> Pages:
        """Extents that the watermark has passed fire, all that are due in one stage."""
        self._watermarks.advance(watermark)
        yield from self._left()
        trigger = self._waiting.watching
        if trigger is not None:
            passed = self._waiting.passed(watermark)
            yield from self._fire(trigger, "watermark", passed, self._known(), watermark)
        self._expire(watermark)

    def tick(self, now_ms: int) -> Pages:
        """Triggers whose timer is due for some shard fire for all, in one stage."""
        self._adopt()
        left = {(each.trigger, each.event_type) for each in self._outcomes}
        yield from self._left()
        for trigger, _ in self._timers.due(now_ms):
            known = self._known()
            if (trigger.name, "timer-tick") not in left:
                yield from self._fire(trigger, "timer-tick", self._all(known), known)
            for shard in sorted(known):
                self._timers.arm(trigger, shard, now_ms)

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do: at once if a result is to be emitted further."""
        return 0 if self._restored.pending else self._timers.next_tick_ms()

    def complete(self, shards: Collection[int], now_ms: int) -> Pages:
        """The job ends for these shards: every trigger fires for all their extents."""
        yield from self._left()
        for trigger in self._triggers.values():
            mine = frozenset(each for each in shards if (trigger.name, each) not in self._done)
            yield from self._fire(trigger, "job-completed", self._all(mine), mine)
        self._timers.restart(shards, now_ms)

    def query(self, keys: Iterable[Any] | None, extents_max: int | None) -> list[Extent]:
        """Raises UserError: no state is here."""
        raise UserError(
            f"window {self._id} has engine: spark, so its states are in files and not on the peer: "
            "emit what you want to see"
        )

    # Segments come.

    def _known(self) -> frozenset[int]:
        return frozenset(self._shards.known)

    def _all(self, shards: Collection[int]) -> list[int]:
        return sorted({*self._holdings.extents(shards), *self._buffer.extents})

    def _expire(self, watermark: Number) -> None:
        """Forget extents that a watermark has passed by more than the lateness allowed."""
        for number in self._waiting.expired(watermark):
            if number in self._buffer.extents:
                self._seal()
            self._remove(ClearExtent(self._id, number), [number], self._known())

    def _remove(self, record: Record, numbers: Collection[int], shards: frozenset[int]) -> None:
        self._changes.append((shards, record))
        self._holdings.remove(numbers, shards)

    # Firing.

    def _fire(
        self,
        trigger: Trigger,
        event_type: EventType,
        numbers: list[int],
        shards: frozenset[int],
        watermark: Number | None = None,
    ) -> Pages:
        """A trigger fires for some extents of some shards."""
        if not numbers or not shards:
            return
        while self._unwritten():
            yield PENDING
        by_watermark = event_type == "watermark"
        plan = self._plan(numbers, shards, watermark if by_watermark else None)
        if not plan.pieces:
            return
        made = None
        for made in self._stage.pages(plan):
            if made is None:
                yield PENDING
        assert made is not None, "it ends with a result"
        fired = SpooledFired(self._id, trigger.name, made, event_type, numbers, watermark)
        source_rows = self._holdings.rows(numbers)
        self._remove(fired, numbers, shards)
        evicts = trigger.forgets if by_watermark else trigger.refinement.evicts
        due = self._stage.due
        unfired = evicts and by_watermark and due is not None
        if unfired or not evicts:
            part = SpooledPart(
                self._id, made, numbers, list(plan.columns), source_rows, self._buffer.seq,
                partial=True, emptied=trigger.refinement.discards, settled=by_watermark,
                unfired=unfired, due=due,
            )  # fmt: skip
            self._hold(part, shards)
        if event_type == "job-completed":
            self._done.update((trigger.name, shard) for shard in shards)
        outcome = Outcome(made, trigger.name, event_type, watermark, shards, own=True)
        self._outcomes.append(outcome)
        yield from self._emit(outcome)

    def _plan(self, numbers: list[int], shards: frozenset[int], watermark: Number | None) -> Plan:
        """`watermark`: of which some fire; None: all do."""
        rule, watching = self._waiting.rule(watermark), self._waiting.watching
        tracked = watching is not None and (rule is not None or not watching.forgets)
        used = self._holdings.columns(numbers)
        return Plan(
            aggregation_name(self._declared.aggregation),
            self._native,
            tuple(name for name in OPTIONAL if name in used),
            self._holdings.pieces(numbers, shards, self._folder),
            self._overlapping,
            tracked,
            watermark is not None and tracked,
            rule,
        )

    def _adopt(self) -> None:
        """Results that were being emitted when this peer took over are its own to emit."""
        self._outcomes += self._restored.take()

    def _left(self) -> Pages:
        """What is left of them."""
        self._adopt()
        for outcome in list(self._outcomes):
            yield from self._emit(outcome)

    def _emit(self, outcome: Outcome) -> Pages:
        """What is left of a result, page by page; the log has the position behind each."""
        trigger, watermark = self._triggers[outcome.trigger], outcome.watermark
        declared, aggregation = trigger.declared, self.compiled.aggregation

        def firing(key: Any, shard: int, bounds: tuple[Number, Number], state: Any) -> Firing:
            seen = self._watermarks.known(shard) if watermark is None else watermark
            return Firing(
                self._declared, declared, outcome.event_type, shard, self._grouped,
                group_value(key), *bounds, aggregation.view(state), None, seen,
            )  # fmt: skip

        yield from self._reader.pages(outcome, firing)
        outcome.file, outcome.row = THROUGH, 0
        self._outcomes.remove(outcome)
        self._changes.append((outcome.shards, outcome.emitted(self._id)))
        if outcome.own:
            self._holdings.emitted(outcome.name)

    def _unwritten(self) -> bool:
        """Whether rows are not in a file yet."""
        self._files = [each for each in self._files if not each.written]
        return bool(len(self._buffer) or self._new_files or self._files)

    # State is recorded and restored.

    def _seal(self) -> None:
        """What the buffer has becomes a part."""
        if not len(self._buffer):
            return
        made, name = self._buffer.take(), new_part()
        self._new_files.append(PartFiles(self._folder, name, made.table))
        part = SpooledPart(
            self._id, name, list(made.extents), list(made.columns), len(made.table), made.seq,
            partial=False, emptied=False, settled=False,
            unfired=False, due=self._waiting.due(made.least),
        )  # fmt: skip
        self._hold(part, made.shards)

    def _hold(self, part: SpooledPart, shards: frozenset[int]) -> None:
        self._holdings.add(part, shards, own=True)
        self._changes.append((shards, part))

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._seal()
        for outcome in self._outcomes:
            self._changes.append((outcome.shards, outcome.emitted(self._id)))
        changes, self._changes = self._changes, []
        for shards, record in changes:
            for shard in sorted(shards):
                append(records, shard, record)
        self._timers.take_changes(records)
        self._watermarks.take_changes(records)

    def take_files(self) -> list[Files]:
        """Files that belong to the changes taken last."""
        new, self._new_files = self._new_files, []
        self._files += new
        garbage = self._holdings.take_garbage()
        return [*new, Garbage(self._folder, garbage)] if garbage else [*new]

    def snapshot(
        self, frozen: Frozen, shards: Collection[int]
    ) -> Callable[[int], Iterator[Record]]:
        """What gives the whole state of each of these shards, as it is now."""
        self._adopt()
        found: Records = {}
        self._holdings.snapshot(shards, found)
        for name, shard in sorted(self._done):
            if shard in shards:
                done = SpooledFired(self._id, name, "", "job-completed", [], None)
                append(found, shard, done)
                append(found, shard, SpooledEmitted(self._id, name, "", THROUGH, 0))
        for outcome in self._outcomes:
            for shard in outcome.shards.intersection(shards):
                append(found, shard, outcome.fired(self._id))
                append(found, shard, outcome.emitted(self._id))
        self._timers.snapshot(shards, found)
        self._watermarks.snapshot(shards, found)
        return lambda shard: iter(found.get(shard, ()))

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record."""
        mine = frozenset((shard,))
        match record:
            case SpooledPart():
                self._holdings.add(record, mine, own=False)
                self._buffer.begin(record.seq)
                self._waiting.restored(record)
            case SpooledFired():
                self._holdings.remove(record.extents, mine)
                self._restored.fired(shard, record)
                if record.event_type == "job-completed":
                    self._done.add((record.trigger, shard))
            case SpooledEmitted():
                self._restored.emitted(shard, record)
            case ClearExtent():
                self._holdings.remove([record.extent], mine)
            case TimerDue():
                self._timers.restore(shard, record)
            case WatermarkReached():
                self._watermarks.restore(shard, record)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        self._seal()
        self._holdings.drop(shards)
        self._timers.drop(shards)
        self._watermarks.drop(shards)
