"""One window on one peer: its extents and its triggers at work, and what is recorded of them.

The window type (`types/`) finds the extents of segments and folds them; the triggers (`triggers/`)
decide which extents fire; here both meet. At each event every trigger, in the order of declaration,
makes extents fire, and its refinement changes them before the next trigger is asked.

Where triggers only count segments, most groups of most batches stay below the threshold. Nobody
looks at their segments one by one, so they cost no step each, and columns do not become dicts. Only
the segments of groups that reach it are added one after the other, because what fires has the state
as it is at that segment. Groups know nothing of each other, so nothing else is different.

Extents, triggers, timers and watermarks make and take back records of their own; `WindowRecords`
goes through all of them, and a record finds the one that has made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np

from onyx.flow.batch import Indices, Segment, Segments, as_dicts
from onyx.keystate.buckets import Frozen, Holder
from onyx.keystate.coded import Groups, Keyed, chosen, rows, shards_of, without
from onyx.keystate.extents import Extent, Number
from onyx.keystate.groups import Shards
from onyx.keystate.records import (
    DeleteTriggerStates,
    FiringProgress,
    Record,
    Records,
    SetTriggerStates,
    StatesRecord,
    TimerDue,
    WatermarkReached,
)
from onyx.keystate.selection import Selection
from onyx.reports.measures import StateMeasures
from onyx.windows.compiled import CompiledWindow
from onyx.windows.extent_firing import ExtentFiring
from onyx.windows.extent_view import ExtentView
from onyx.windows.firing import AnyFiring, FiringPages
from onyx.windows.prepared import WindowInput
from onyx.windows.running import AllInRecords
from onyx.windows.triggers.segment import SegmentTrigger
from onyx.windows.triggers.timers import Course, PageProgress, WindowTimers
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.types.extents import Extents, OnPeer
from onyx.windows.types.table import TYPES
from onyx.windows.watermarks import ShardWatermarks

_UNSEEN: Segment = {}
"""In place of a segment that nobody looks at."""


class Window(AllInRecords):
    """A window of a task, over the shards of state that the peer owns."""

    def __init__(
        self,
        compiled: CompiledWindow,
        grouped: bool,
        shards: Shards,
        holder: Holder,
        page_max: int,
    ) -> None:
        """`page_max`: firings of one page."""
        self.compiled = compiled
        self._shards = shards
        self._holder, self._page_max = holder, page_max
        window_id, of_segments = compiled.window.id, compiled.watermark_of_segments
        recorded = compiled.lateness is not None or of_segments
        self._watermarks = ShardWatermarks(window_id, of_segments, recorded, shards)
        self._each_segment = of_segments or any(each.by_segment for each in compiled.triggers)
        """Whether triggers, or the watermarks of shards, look at each segment."""
        whole = not self._each_segment
        on_peer = OnPeer(compiled, shards, holder, self._watermarks, page_max, whole)
        self._extents: Extents[Any] = TYPES[compiled.window.type].made(on_peer)
        self._triggers = {each.name: each.on_peer(window_id, shards) for each in compiled.triggers}
        self._timers = WindowTimers(window_id, self._triggers.values())
        self._view = ExtentView(on_peer, self._extents, grouped, len(self._triggers))
        self._firing = ExtentFiring(
            on_peer, self._extents, self._triggers, self._timers, self._view
        )
        self._records = WindowRecords(
            self._extents, self._triggers, self._timers, self._firing.progress, self._watermarks
        )
        late = of_segments or compiled.lateness is not None
        self._counting = () if late else counting(self._triggers.values())
        """Triggers that only count segments, of which none is late."""

    # Events.

    def add(
        self, segments: Segments, taken: WindowInput, keys: Keyed, now_ms: int
    ) -> tuple[list[tuple[int, AnyFiring]], list[int]]:
        """Take a batch: firings with the index of their segment, and indices of late segments."""
        if self._counting and not self._watermarks.own:
            return self._add_counted(segments, taken, keys, now_ms)
        if self._each_segment or self._watermarks.own:
            its_rows = self._rows(segments)
            return self._add_each(its_rows, taken.by_row(), rows(keys), now_ms)
        late = self._extents.add(taken, keys)
        if self._timers:
            self._timers.start(shards_of(without(keys, late), self._shards), now_ms)
        return [], late

    def _add_counted(
        self, segments: Segments, taken: WindowInput, keys: Keyed, now_ms: int
    ) -> tuple[list[tuple[int, AnyFiring]], list[int]]:
        """A batch of which only segments of some groups are looked at (`counting`)."""
        quiet, loud, counts = count(self._counting, keys)
        if counts:
            mine = taken if quiet is None else taken.chosen(quiet)
            self._extents.add(mine, chosen(keys, quiet))
            if self._timers:
                self._timers.start(shards_of(list(counts), self._shards), now_ms)
        if not len(loud):
            return [], []
        looked_at = self._rows(chosen(segments, loud))
        its, groups = taken.chosen(loud).by_row(), rows(chosen(keys, loud))
        fired, _ = self._add_each(looked_at, its, groups, now_ms)
        return [(int(loud[index]), firing) for index, firing in fired], []

    def _rows(self, segments: Segments) -> Sequence[Segment]:
        """Segments one by one: columns become dicts if a trigger looks at them."""
        looked_at = any(trigger.by_segment for trigger in self._triggers.values())
        return as_dicts(segments) if looked_at else [_UNSEEN] * len(segments)

    def _add_each(
        self, segments: Sequence[Segment], taken: WindowInput, keys: Sequence[Any], now_ms: int
    ) -> tuple[list[tuple[int, AnyFiring]], list[int]]:
        self._extents.settle()
        fired: list[tuple[int, AnyFiring]] = []
        late: list[int] = []
        for index, key in enumerate(keys):
            extents = self._extents.add_one(taken, index, key)
            if not extents:
                late.append(index)
                continue
            if self._timers:
                self._timers.start({self._shards[key]: None}, now_ms)
            if self._each_segment:
                coordinate = 0 if taken.coordinates is None else taken.coordinates[index]
                firings = self._firing.on_segment(key, extents, segments[index], coordinate)
                fired += [(index, firing) for firing in firings]
        return fired, late

    def settle(self) -> None:
        """Get all that was added into the states. Called before any other method but `add`."""
        self._extents.settle()

    def advance(self, watermark: Number) -> FiringPages:
        """The watermark that inputs have assigned has risen."""
        self._watermarks.advance(watermark)
        if self.compiled.watermark_of_segments:
            return
        for trigger in self._triggers.values():
            if trigger.by_watermark:
                fire = self._firing.of_watermark(trigger, watermark)
                yield from self._extents.pass_watermark(trigger, watermark, None, fire)
            elif trigger.by_group:
                yield from self._firing.of_shards(trigger, "watermark", list(self._shards.known))
        self._extents.expire(watermark, None)

    def tick(self, now_ms: int) -> FiringPages:
        """Timers fire that were due before `now_ms`."""
        for trigger, shards in self._timers.due(now_ms):
            yield from self._firing.of_shards(trigger, "timer-tick", shards, now_ms)

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._timers.next_tick_ms()

    def complete(self, shards: Collection[int], now_ms: int) -> FiringPages:
        """The job ends for these shards."""
        for trigger in self._triggers.values():
            if trigger.at_end != "never":
                yield from self._firing.of_shards(trigger, "job-completed", shards)
        self._timers.restart(shards, now_ms)

    def query(self, asked: Selection, extents_max: int | None) -> list[Extent]:
        """Extents that are asked for; the first in order, if only some are wanted."""
        return self._view.query(asked, extents_max)

    def look_up(self, keys: Sequence[Any]) -> list[list[Any]]:
        """For each group a list with its state, which is empty if it has none; of a window with one
        extent for each group."""
        return self._view.look_up(keys)

    def measures(self) -> StateMeasures:
        """Groups and timers. From any thread."""
        return self._timers.measures(self._extents.size())

    # State is recorded and restored.

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._records.take_changes(records)

    def snapshot(
        self, frozen: Frozen, shards: Collection[int]
    ) -> Callable[[int], Iterator[Record]]:
        """What gives the whole state of each of these shards, as it is now."""
        return self._records.snapshot(frozen, shards)

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record; that of a trigger which is not declared any more is left out."""
        self._records.restore(shard, record)

    def resume(self, watermark: Number) -> None:
        """The watermark was here when the restored state was recorded: what it passed has fired."""
        self._watermarks.task = watermark

    def is_late(self, record: StatesRecord) -> bool:
        """Whether segments of states that were folded elsewhere may be late."""
        return self._extents.is_late(record)

    def merge(self, record: StatesRecord) -> None:
        """Add states that were folded elsewhere."""
        self._extents.settle()
        self._extents.merge(record)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now, with what has changed in them."""
        self._records.drop(shards)


class BatchCounts(NamedTuple):
    """A batch, as the triggers count it."""

    quiet: Indices | None
    """Segments of groups for which none fires; None: all."""
    loud: Indices
    """The others."""
    counts: Mapping[Any, int]
    """How many segments the quiet groups have."""


def counting(triggers: Iterable[Trigger]) -> Sequence[SegmentTrigger]:
    """The triggers that look at segments, if they only count them; none otherwise. (With
    `fireAllExtents` extents fire in the order in which they began, which would be another one.)"""
    asked = [each for each in triggers if each.by_segment]
    found = [each for each in asked if isinstance(each, SegmentTrigger)]
    if len(found) < len(asked) or any(each.declared.fire_all_extents for each in found):
        return ()
    return found


def count(triggers: Sequence[SegmentTrigger], keys: Keyed) -> BatchCounts:
    """Find the groups for which a trigger fires, and count the segments of the others."""
    many: Mapping[Any, int]
    if isinstance(keys, Groups):
        many = dict(zip(keys.keys, keys.counts(), strict=True))
    else:
        many = Counter(keys)
    loud = {
        key for key, rows in many.items() if not all(each.is_quiet(key, rows) for each in triggers)
    }
    counts = {key: rows for key, rows in many.items() if key not in loud} if loud else many
    for trigger in triggers:
        trigger.add(counts)
    if not loud:
        return BatchCounts(None, np.empty(0, np.intp), counts)
    mask = _in(keys, loud)
    return BatchCounts(np.flatnonzero(~mask), np.flatnonzero(mask), counts)


def _in(keys: Keyed, wanted: Collection[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    each = keys.keys if isinstance(keys, Groups) else keys
    found = np.fromiter(map(wanted.__contains__, each), np.bool_, len(each))
    return found[keys.codes] if isinstance(keys, Groups) else found


class RecordedPart(Protocol):
    """A part of a window that is recorded by itself."""

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        ...

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add all of some shards."""
        ...

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        ...


class WindowRecords:
    """The records of one window on one peer."""

    def __init__(
        self,
        extents: Extents[Any],
        triggers: Mapping[str, Trigger],
        timers: WindowTimers,
        progress: PageProgress,
        watermarks: ShardWatermarks,
    ) -> None:
        self._extents = extents
        self._triggers = triggers
        states = [each.states for each in triggers.values()]
        self._each: tuple[RecordedPart, ...] = (extents, *states, timers, progress, watermarks)
        self._timers = timers
        self._progress = progress
        self._watermarks = watermarks

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        for each in self._each:
            each.take_changes(records)

    def snapshot(
        self, frozen: Frozen, shards: Collection[int]
    ) -> Callable[[int], Iterator[Record]]:
        """What gives the whole state of each of these shards, as it is now."""
        states = self._extents.states(frozen)
        rest: Records = {}
        for each in self._each:
            each.snapshot(shards, rest)
        return lambda shard: chain(states(shard), rest.get(shard, ()))

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record; that of a trigger which is not declared any more is left out."""
        match record:
            case SetTriggerStates(trigger=name) | DeleteTriggerStates(trigger=name):
                if name in self._triggers:
                    self._triggers[name].states.restore(record)
            case TimerDue(trigger=name):
                self._timers.restore(shard, record)
                self._progress.forget(Course(name, "timer-tick", shard))
            case FiringProgress():
                self._progress.restore(shard, record)
            case WatermarkReached():
                self._watermarks.restore(shard, record)
            case _:
                self._extents.restore(shard, record)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now, with what has changed in them."""
        for each in self._each:
            each.drop(shards)
