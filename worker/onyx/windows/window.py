"""What fixed, sliding, global and session windows have in common: their triggers at work.

A window asks the triggers after each segment, at each timer, watermark and at the end; each in the
order of declaration looks at extents, fires, and has its refinement change them before the next one
looks. Extents are held by the subclasses, which know how to find, change and remove them; here they
are only handed around.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain
from typing import Any

from onyx.flow.batch import Segment
from onyx.windows.answers import order
from onyx.windows.buckets import Frozen, Holder
from onyx.windows.compile import CompiledWindow
from onyx.windows.firing import EventType, Extent, Firing, Number, Runs
from onyx.windows.groups import Shards, group_value
from onyx.windows.prepared import Taken
from onyx.windows.records import Record, Records, tell
from onyx.windows.triggers.group_states import NOTHING, TriggerStates
from onyx.windows.triggers.progress import Underway, Unit
from onyx.windows.triggers.timers import Timers
from onyx.windows.triggers.trigger import CompiledTrigger, counted

NOTHING_SEEN = float("-inf")


class WindowState(ABC):
    """One window on one peer."""

    def __init__(
        self,
        compiled: CompiledWindow,
        grouped: bool,
        shards: Shards,
        holder: Holder,
        run_max: int,
    ) -> None:
        """`run_max`: firings of one run."""
        self.compiled = compiled
        self._run_max = run_max
        self._window = compiled.window
        self._aggregation = compiled.aggregation
        self._triggers = compiled.triggers
        self._grouped = grouped
        self._shards = shards
        self._holder = holder
        self._watermark: Number = NOTHING_SEEN
        self._shard_watermarks: dict[int, Number] = {}
        """Watermarks of shards that are ahead of the task's, or have their own."""
        self._watermarks_changed = False
        self._timers = Timers(self._window.id, self._triggers)
        self._states = TriggerStates(
            self._window.id, [each.name for each in self._triggers], shards
        )
        self._underway = Underway(self._window.id)
        self._by_segment = compiled.watermark_of_segments or any(
            each.by_segment for each in self._triggers
        )

    # What subclasses do with extents.

    @abstractmethod
    def add(
        self, segments: Sequence[Segment], taken: Taken, keys: Sequence[Any], now_ms: int
    ) -> tuple[list[tuple[int, Firing]], list[int]]:
        """Take a batch: firings with the index of their segment, and indices of late segments."""

    def settle(self) -> None:  # noqa: B027 - most have nothing to do
        """Get everything that was added into the states. To be called before anything but `add`
        is."""

    @abstractmethod
    def _extents(self, key: Any) -> list[Any]:
        """All extents of a group."""

    @abstractmethod
    def _everything(self, shards: Collection[int] | None = None) -> Iterator[tuple[Any, Any]]:
        """Group and extent, of some shards or all; they may be changed meanwhile."""

    @abstractmethod
    def _units(self, shards: Collection[int]) -> Callable[[int], Iterable[Unit]]:
        """What gives for each of these shards what fires at once, in order of extents; meanwhile
        it may be changed and removed."""

    @abstractmethod
    def _unit(self, unit: Unit) -> Sequence[Any]:
        """The extents of a unit that are there."""

    @abstractmethod
    def _alive(self, key: Any, extent: Any) -> bool: ...

    @abstractmethod
    def _bounds(self, extent: Any) -> tuple[Number, Number]: ...

    @abstractmethod
    def _get(self, key: Any, extent: Any) -> Any: ...

    @abstractmethod
    def _set(self, key: Any, extent: Any, state: Any) -> None: ...

    @abstractmethod
    def _remove(self, key: Any, extent: Any) -> None: ...

    @abstractmethod
    def _pass(self, trigger: CompiledTrigger, watermark: Number, shard: int | None) -> Runs:
        """Extents that a watermark has passed fire: of all shards, or of one."""

    @abstractmethod
    def _expire(self, watermark: Number, shard: int | None) -> None:
        """Forget what is passed by more than the lateness allowed."""

    @abstractmethod
    def _take_extents(self, records: Records) -> None: ...

    @abstractmethod
    def _restore_extents(self, shard: int, record: Record) -> None: ...

    @abstractmethod
    def _snapshot_extents(self, shards: Collection[int], records: Records) -> None: ...

    @abstractmethod
    def _freeze_extents(self, frozen: Frozen) -> Callable[[int], Iterator[Record]]:
        """What makes the records of all extents of a shard, as they are frozen."""

    @abstractmethod
    def _drop_extents(self, shards: Collection[int]) -> None: ...

    # Events.

    def advance(self, watermark: Number) -> Runs:
        """The watermark that inputs have assigned has risen."""
        self._watermark = watermark
        self._watermarks_changed = True
        if self.compiled.watermark_of_segments:
            return
        ahead = self._shard_watermarks
        if ahead:
            self._shard_watermarks = {
                shard: each for shard, each in ahead.items() if each > watermark
            }
        for trigger in self._triggers:
            if trigger.by_watermark:
                yield from self._pass(trigger, watermark, None)
            elif trigger.kind == "own":
                yield from self._fire_shards(trigger, "watermark", list(self._shards.known))
        self._expire(watermark, None)

    def tick(self, now_ms: int) -> Runs:
        """Timers fire that were due before `now_ms`."""
        for trigger, shards in self._timers.due(now_ms):
            yield from self._fire_shards(trigger, "timer-tick", shards, now_ms)

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._timers.next_tick_ms()

    def complete(self, shards: Collection[int], now_ms: int) -> Runs:
        """The job ends for these shards."""
        for trigger in self._triggers:
            yield from self._fire_shards(trigger, "job-completed", shards)
        self._timers.restart(shards, now_ms)

    def query(self, keys: Iterable[Any] | None, extents_max: int | None) -> list[Extent]:
        """Extents of some groups, or of all; the first in order, if only some are wanted. Only
        their states are copied."""
        found: Iterable[tuple[Any, Any]] = (
            self._everything()
            if keys is None
            else ((key, extent) for key in keys for extent in self._extents(key))
        )
        if extents_max is not None:
            found = nsmallest(extents_max, found, key=self._order)
        return [
            Extent(
                self._group(key),
                *self._bounds(extent),
                self._aggregation.view(self._get(key, extent)),
            )
            for key, extent in found
        ]

    def _order(self, found: tuple[Any, Any]) -> tuple[Any, ...]:
        key, extent = found
        return order(self._group(key), *self._bounds(extent))

    # Triggers at work.

    def _start_timers(self, keys: Iterable[Any], now_ms: int) -> None:
        """Timers run from the first segment of a shard on."""
        if self._timers:
            self._timers.start({self._shard(key): None for key in keys}, now_ms)

    def _on_segment(
        self, key: Any, extents: Sequence[Any], segment: Segment, place: Number
    ) -> list[Firing]:
        """What a segment that has come into these extents makes fire."""
        fired: list[Firing] = []
        risen = self.compiled.watermark_of_segments and self._rises(key, place)
        for trigger in self._triggers:
            if trigger.by_segment:
                for extent in self._woken(trigger, key, extents, segment, place):
                    self._fire(fired, trigger, "new-segment", key, extent, segment)
            elif trigger.by_watermark and risen:
                for run in self._pass(trigger, place, self._shard(key)):
                    fired += run
        if risen:
            self._expire(place, self._shard(key))
        return fired

    def _rises(self, key: Any, place: Number) -> bool:
        """Whether a segment is the new watermark of its shard."""
        shard = self._shard(key)
        if place <= self._shard_watermarks.get(shard, NOTHING_SEEN):
            return False
        self._shard_watermarks[shard] = place
        self._watermarks_changed = True
        return True

    def _woken(
        self,
        trigger: CompiledTrigger,
        key: Any,
        extents: Sequence[Any],
        segment: Segment,
        place: Number,
    ) -> list[Any]:
        """The extents that a segment makes a trigger fire for."""
        if trigger.kind == "own":
            looked_at = self._looked_at(trigger, key, extents)
            return self._asked(trigger, "new-segment", key, looked_at, segment)
        if trigger.kind == "segment":
            if not self._count(trigger, key):
                return []
        elif trigger.kind == "punctuation":
            assert trigger.pred is not None
            if not trigger.pred(trigger.trigger, self._event("new-segment", key, segment)):
                return []
        else:
            return [
                extent
                for extent in self._looked_at(trigger, key, extents)
                if trigger.reached(place, *self._bounds(extent))
            ]
        return self._looked_at(trigger, key, extents)

    def _count(self, trigger: CompiledTrigger, key: Any) -> bool:
        """Count a segment; whether it makes the trigger fire."""
        before = self._states.get(trigger.name, key)
        count = counted(0 if before is NOTHING else before, trigger.threshold)
        fires = count == trigger.threshold
        self._states.set(trigger.name, key, NOTHING if fires else count)
        return fires

    def _looked_at(self, trigger: CompiledTrigger, key: Any, extents: Sequence[Any]) -> list[Any]:
        if trigger.trigger.fire_all_extents:
            return self._extents(key)
        return [extent for extent in extents if self._alive(key, extent)]

    def _fire_shards(
        self,
        trigger: CompiledTrigger,
        event_type: EventType,
        shards: Collection[int],
        now_ms: int = 0,
    ) -> Runs:
        """All extents of some shards fire, or are shown to a trigger of the user, because of
        something other than a segment. How far that has come is told, but for a watermark: what it
        has not come to is shown to the trigger with the next one."""
        units = self._units(shards)
        run: list[Firing] = []
        for shard in shards:
            place = trigger.name, event_type, shard
            mine = units(shard)
            if trigger.kind == "own":
                mine = ((None, key) for key in dict.fromkeys(key for _, key in mine))
            for unit in self._underway.left(place, mine):
                for extent in self._woken_by(trigger, event_type, unit):
                    self._fire(run, trigger, event_type, unit[1], extent, None)
                if event_type != "watermark":
                    self._underway.fired(place, unit)
                self._holder.trim()
                if len(run) >= self._run_max:
                    yield run
                    run = []
            if event_type == "timer-tick":
                self._timers.arm(trigger, shard, now_ms)
                self._underway.forget(place)
            elif event_type == "job-completed":
                self._underway.through(place)
        yield run

    def _woken_by(
        self, trigger: CompiledTrigger, event_type: EventType, unit: Unit
    ) -> Sequence[Any]:
        if trigger.kind != "own":
            return self._unit(unit)
        key = unit[1]
        return self._asked(trigger, event_type, key, self._extents(key), None)

    def _asked(
        self,
        trigger: CompiledTrigger,
        event_type: EventType,
        key: Any,
        extents: Sequence[Any],
        segment: Segment | None,
    ) -> list[Any]:
        """Those extents for which a trigger of the user says that it fires."""
        own, calls = trigger.trigger, trigger.calls
        state = self._states.get(trigger.name, key)
        if state is NOTHING:
            state = calls["init_state"](own) if "init_state" in calls else None
        if "next_state" in calls:
            state = calls["next_state"](own, state, self._event(event_type, key, segment))
            self._states.set(trigger.name, key, state)
        woken = []
        for extent in extents:
            firing = self._firing(trigger, event_type, key, extent, segment)
            event = dict(firing.state_event())
            if "window-state" in own.state_context:
                event["extent_state"] = firing.state
            if calls["trigger_fire"](own, state, event):
                woken.append(extent)
        return woken

    def _fire(
        self,
        fired: list[Firing],
        trigger: CompiledTrigger,
        event_type: EventType,
        key: Any,
        extent: Any,
        segment: Segment | None,
    ) -> None:
        """One extent fires and is refined."""
        firing = self._firing(trigger, event_type, key, extent, segment)
        fired.append(firing)
        refinement = trigger.refinement
        if refinement.evicts or (event_type == "watermark" and trigger.forgets):
            self._remove(key, extent)
        elif refinement.discards:
            self._set(key, extent, self._aggregation.init())
        elif refinement.calls:
            self._refine(trigger, firing, key, extent)

    def _refine(self, trigger: CompiledTrigger, firing: Firing, key: Any, extent: Any) -> None:
        calls, own = trigger.refinement.calls, trigger.trigger
        view = self._aggregation.view(self._get(key, extent))
        update = calls["create_state_update"](own, view, firing.state_event())
        refined = calls["apply_state_update"](own, view, update)
        self._set(key, extent, self._aggregation.from_view(refined))

    def _firing(
        self,
        trigger: CompiledTrigger,
        event_type: EventType,
        key: Any,
        extent: Any,
        segment: Segment | None,
    ) -> Firing:
        lower, upper = self._bounds(extent)
        shard = self._shard(key)
        return Firing(
            self._window,
            trigger.trigger,
            event_type,
            shard,
            self._grouped,
            self._group(key),
            lower,
            upper,
            self._aggregation.view(self._get(key, extent)),
            segment,
            self._known_watermark(shard),
        )

    def _event(self, event_type: EventType, key: Any, segment: Segment | None) -> dict[str, Any]:
        """A state event about no extent in particular."""
        return {
            "event_type": event_type,
            "segment": segment,
            "grouped": self._grouped,
            "group_key": self._group(key),
            "window": self._window,
            "watermark": self._known_watermark(self._shard(key)),
        }

    # Groups, shards and watermarks.

    def _group(self, key: Any) -> Any:
        return group_value(key)

    def _shard(self, key: Any) -> int:
        return self._shards[key]

    def _watermark_of(self, shard: int) -> Number:
        own = self._shard_watermarks.get(shard, NOTHING_SEEN)
        return own if self.compiled.watermark_of_segments else max(own, self._watermark)

    def _known_watermark(self, shard: int) -> Number | None:
        watermark = self._watermark_of(shard)
        return None if watermark == NOTHING_SEEN else watermark

    # Changes.

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._take_extents(records)
        self._states.take(records)
        self._timers.take_changes(records)
        self._underway.take(records)
        if self._watermarks_changed and self._keeps_watermarks():
            for shard in self._shards.known:
                self._tell_watermark(records, shard)
        self._watermarks_changed = False

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the whole state of some shards."""
        self._snapshot_extents(shards, records)
        self._snapshot_rest(shards, records)

    def freeze(self, frozen: Frozen, shards: Collection[int]) -> Callable[[int], Iterator[Record]]:
        """What makes the same for each of these shards, as it is now."""
        extents = self._freeze_extents(frozen)
        rest: Records = {}
        self._snapshot_rest(shards, rest)
        return lambda shard: chain(extents(shard), rest.get(shard, ()))

    def _snapshot_rest(self, shards: Collection[int], records: Records) -> None:
        self._states.snapshot(shards, records)
        self._timers.snapshot(shards, records)
        self._underway.snapshot(shards, records)
        if self._keeps_watermarks():
            for shard in shards:
                self._tell_watermark(records, shard)

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record; of a trigger that is gone it is left out."""
        kind = record[0]
        if kind in ("states", "no-states"):
            self._states.restore(record)
        elif kind == "timer":
            self._timers.restore(shard, record)
            self._underway.forget((record[2], "timer-tick", shard))
        elif kind == "under-way":
            self._underway.restore(shard, record)
        elif kind == "watermark":
            if record[2] > self._watermark_of(shard):
                self._shard_watermarks[shard] = record[2]
        else:
            self._restore_extents(shard, record)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards, with what has changed in them."""
        self._drop_extents(shards)
        self._states.drop(shards)
        self._timers.drop(shards)
        self._underway.drop(shards)
        for shard in shards:
            self._shard_watermarks.pop(shard, None)

    def _keeps_watermarks(self) -> bool:
        """Whether it matters after a restart how far the watermark was."""
        return self.compiled.lateness is not None or self.compiled.watermark_of_segments

    def _tell_watermark(self, records: Records, shard: int) -> None:
        watermark = self._watermark_of(shard)
        if watermark != NOTHING_SEEN:
            tell(records, shard, ["watermark", self._window.id, watermark])
