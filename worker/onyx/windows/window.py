"""One window on one peer: its extents and its triggers at work.

The window type (`types/`) finds the extents of segments and folds them; the triggers (`triggers/`)
decide which extents fire; here both meet. At each event every trigger, in the order of declaration,
makes extents fire, and its refinement changes them before the next trigger is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from onyx.flow.batch import Segment, Segments, as_dicts
from onyx.keystate.buckets import Frozen, Holder
from onyx.keystate.coded import Keyed, chosen, rows, shards_of, without
from onyx.keystate.extents import Extent, Number
from onyx.keystate.groups import Shards
from onyx.keystate.records import Record, Records, StatesRecord
from onyx.keystate.selection import Selection
from onyx.windows.compiled import CompiledWindow
from onyx.windows.counting import count, counting
from onyx.windows.extent_view import ExtentView
from onyx.windows.fires import Fires
from onyx.windows.firing import AnyFiring, Pages
from onyx.windows.kept import Kept
from onyx.windows.prepared import Taken
from onyx.windows.running import AllInRecords
from onyx.windows.shard_watermarks import ShardWatermarks
from onyx.windows.triggers.timers import Timers
from onyx.windows.types.extents import Extents, OnPeer
from onyx.windows.types.table import TYPES

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
        self._timers = Timers(window_id, self._triggers.values())
        self._view = ExtentView(on_peer, self._extents, grouped, len(self._triggers))
        self._fires = Fires(on_peer, self._extents, self._triggers, self._timers, self._view)
        self._kept = Kept(
            self._extents, self._triggers, self._timers, self._fires.progress, self._watermarks
        )
        late = of_segments or compiled.lateness is not None
        self._counting = () if late else counting(self._triggers.values())
        """Triggers that only count segments, of which none is late."""

    # Events.

    def add(
        self, segments: Segments, taken: Taken, keys: Keyed, now_ms: int
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
        self, segments: Segments, taken: Taken, keys: Keyed, now_ms: int
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
        self, segments: Sequence[Segment], taken: Taken, keys: Sequence[Any], now_ms: int
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
                firings = self._fires.on_segment(key, extents, segments[index], coordinate)
                fired += [(index, firing) for firing in firings]
        return fired, late

    def settle(self) -> None:
        """Get all that was added into the states. Called before any other method but `add`."""
        self._extents.settle()

    def advance(self, watermark: Number) -> Pages:
        """The watermark that inputs have assigned has risen."""
        self._watermarks.advance(watermark)
        if self.compiled.watermark_of_segments:
            return
        for trigger in self._triggers.values():
            if trigger.by_watermark:
                fire = self._fires.of_watermark(trigger, watermark)
                yield from self._extents.pass_watermark(trigger, watermark, None, fire)
            elif trigger.by_group:
                yield from self._fires.of_shards(trigger, "watermark", list(self._shards.known))
        self._extents.expire(watermark, None)

    def tick(self, now_ms: int) -> Pages:
        """Timers fire that were due before `now_ms`."""
        for trigger, shards in self._timers.due(now_ms):
            yield from self._fires.of_shards(trigger, "timer-tick", shards, now_ms)

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._timers.next_tick_ms()

    def complete(self, shards: Collection[int], now_ms: int) -> Pages:
        """The job ends for these shards."""
        for trigger in self._triggers.values():
            if trigger.at_end != "never":
                yield from self._fires.of_shards(trigger, "job-completed", shards)
        self._timers.restart(shards, now_ms)

    def query(self, asked: Selection, extents_max: int | None) -> list[Extent]:
        """Extents that are asked for; the first in order, if only some are wanted."""
        return self._view.query(asked, extents_max)

    def look_up(self, keys: Sequence[Any]) -> list[list[Any]]:
        """For each group a list with its state, which is empty if it has none; of a window with one
        extent for each group."""
        return self._view.look_up(keys)

    # State is recorded and restored.

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._kept.take_changes(records)

    def snapshot(
        self, frozen: Frozen, shards: Collection[int]
    ) -> Callable[[int], Iterator[Record]]:
        """What gives the whole state of each of these shards, as it is now."""
        return self._kept.snapshot(frozen, shards)

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record; that of a trigger which is not declared any more is left out."""
        self._kept.restore(shard, record)

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
        self._kept.drop(shards)
