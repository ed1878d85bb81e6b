"""What makes the extents of one window fire, and what becomes of them then.

Groups of one extent fire together, up to a page of them: their states are taken, made into firings
and refined as a whole, because thousands fire at once. Sessions, and groups that a trigger is asked
about, fire one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any

from onyx.flow.segment import Segment
from onyx.keystate.buckets import Pair, keys_of
from onyx.keystate.extents import Number
from onyx.keystate.groups import group_value
from onyx.keystate.records import EventType
from onyx.windows.extent_view import ExtentView
from onyx.windows.firing import AnyFiring, Firing, FiringPages, FiringRows, columns_of, held
from onyx.windows.triggers.timers import Course, PageProgress, Unit, WindowTimers
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.types.extents import GONE, Extents, Fire, OnPeer

_ROWS_MIN = 16
"""Fewer groups are put together with those of other shards and extents (`emitted`)."""


class ExtentFiring:
    """The firing of one window on one peer."""

    def __init__(
        self,
        on_peer: OnPeer,
        extents: Extents[Any],
        triggers: Mapping[str, Trigger],
        timers: WindowTimers,
        view: ExtentView,
    ) -> None:
        self._declared = on_peer.compiled.window
        self._aggregation = on_peer.compiled.aggregation
        self._of_segments = on_peer.compiled.watermark_of_segments
        self._shards, self._watermarks = on_peer.shards, on_peer.watermarks
        self._holder, self._page_max = on_peer.holder, on_peer.page_max
        self._extents = extents
        self._triggers = triggers
        self._timers = timers
        self._view = view
        self.progress = PageProgress(on_peer.compiled.window.id)

    def on_segment(
        self, key: Any, extents: Sequence[Any], segment: Segment, coordinate: Number
    ) -> list[AnyFiring]:
        """What a segment that has come into these extents makes fire."""
        shard = self._shards[key]
        fired: list[AnyFiring] = []
        risen = self._of_segments and self._watermarks.rises(shard, coordinate)
        for trigger in self._triggers.values():
            if trigger.by_segment:
                woken = trigger.on_segment(self._view, key, extents, segment, coordinate)
                fired += [self._fire(trigger, "new-segment", key, each, segment) for each in woken]
            elif trigger.by_watermark and risen:
                fire = self.of_watermark(trigger, self._watermarks.of(shard))
                pages = self._extents.pass_watermark(trigger, coordinate, shard, fire)
                fired += chain.from_iterable(pages)
        if risen:
            self._extents.expire(coordinate, shard)
        return fired

    def of_shards(
        self,
        trigger: Trigger,
        event_type: EventType,
        shards: Collection[int],
        now_ms: int = 0,
    ) -> FiringPages:
        """Extents of some shards fire because of something other than a segment, page by page. What
        has fired is remembered (`progress`), but for a watermark: a trigger that is asked at each
        of them looks at the rest with the next one."""
        units = self._extents.units(shards)
        page: list[AnyFiring] = []
        groups = 0
        for shard in shards:
            course = Course(trigger.name, event_type, shard)
            mine = units(shard)
            if trigger.by_group:
                mine = ((None, key) for key in dict.fromkeys(key for _, key in mine))
            elif event_type == "job-completed" and trigger.at_end == "changed":
                mine = self._unfired(trigger, mine)
            for number, its in groupby(self.progress.left(course, mine), itemgetter(0)):
                while keys := [key for _, key in islice(its, self._together(number, groups))]:
                    fired = self._fire_groups(trigger, event_type, shard, number, keys)
                    page += fired
                    groups += sum(map(_groups, fired))
                    if event_type != "watermark":
                        self.progress.fired(course, number, keys)
                    self._holder.trim()
                    if groups >= self._page_max:
                        yield page
                        page, groups = [], 0
            if event_type == "timer-tick":
                self._timers.arm(trigger, shard, now_ms)
                self.progress.forget(course)
            elif event_type == "job-completed":
                self.progress.finish(course)
        yield page

    def _unfired(self, trigger: Trigger, units: Iterable[Unit]) -> Iterator[Unit]:
        """Units that have changed since a trigger fired for them. Of a group with all its extents
        each is asked when it fires."""
        unfired = self._extents.unfired
        return (
            (number, key)
            for number, key in units
            if number is None or unfired(trigger.name, key, number)
        )

    def _together(self, number: int | None, groups: int) -> int:
        """How many groups fire next: those for which a page of so many has room, if each fires
        once."""
        return 1 if number is None else self._page_max - groups

    def of_watermark(self, trigger: Trigger, watermark: Number) -> Fire[Any]:
        """What makes groups of an extent fire that a watermark has passed."""

        def fire(extent: Any, pairs: Sequence[Pair]) -> list[AnyFiring]:
            fired = self._fired(trigger, "watermark", extent, pairs, watermark)
            if not trigger.forgets:
                self._refine(trigger, extent, pairs, fired)
            return fired

        return fire

    def _fire_groups(
        self,
        trigger: Trigger,
        event_type: EventType,
        shard: int,
        number: int | None,
        keys: list[Any],
    ) -> list[AnyFiring]:
        """Groups of a shard fire; in the extent of this number, or in all that they have."""
        if number is not None:
            pairs = self._extents.pairs(number, keys)
            watermark = self._watermarks.known(shard)
            fired = self._fired(trigger, event_type, number, pairs, watermark)
            if trigger.notes_fired:
                self._extents.have_fired(trigger.name, number, keys)
            self._refine(trigger, number, pairs, fired)
            return fired
        return list(chain.from_iterable(self._of_group(trigger, event_type, key) for key in keys))

    def _of_group(self, trigger: Trigger, event_type: EventType, key: Any) -> Iterator[Firing]:
        if trigger.by_group:
            extents = trigger.on_group(self._view, event_type, key)
        else:
            extents = self._extents.find(key)
        if event_type == "job-completed" and trigger.at_end == "changed":
            extents = [each for each in extents if self._extents.unfired(trigger.name, key, each)]
        for extent in extents:
            yield self._fire(trigger, event_type, key, extent, None)

    def _fired(
        self,
        trigger: Trigger,
        event_type: EventType,
        extent: Any,
        pairs: Sequence[Pair],
        watermark: Number | None,
    ) -> list[AnyFiring]:
        """What groups of an extent fire: rows, if the trigger takes them and columns hold them."""
        declared, window, grouped = trigger.declared, self._declared, self._view.grouped
        if trigger.in_rows and len(pairs) >= _ROWS_MIN:
            found = held(pairs, self._shards, self._aggregation)
            rows = None
            if found is not None:
                rows = columns_of(found, *(found.bounds or self._extents.bounds(extent)))
            if found is not None and rows is not None:
                shards = found.shards
                return [FiringRows(window, declared, event_type, grouped, rows, shards, watermark)]
        # It takes no step a group that it can do without.
        view, shard_of = self._aggregation.view, self._shards
        return [
            Firing(
                window, declared, event_type, shard_of[key], grouped, group_value(key), *bounds,
                view(state), None, watermark,
            )
            for (key, state), bounds in zip(
                pairs, self._extents.each_bounds(extent, len(pairs)), strict=True
            )
        ]  # fmt: skip

    def _fire(
        self, trigger: Trigger, event_type: EventType, key: Any, extent: Any,
        segment: Segment | None,
    ) -> Firing:  # fmt: skip
        """A group of an extent fires, and is refined or removed."""
        firing = self._view.firing(trigger.declared, event_type, key, extent, segment)
        if trigger.notes_fired:
            self._extents.have_fired(trigger.name, extent, [key])
        if trigger.refinement.evicts:
            self._extents.put(key, extent, GONE)
        elif trigger.refinement.changes:
            state = self._extents.get(key, extent)
            refined = trigger.refinement.refined(self._aggregation, firing, state)
            self._extents.put(key, extent, refined)
        return firing

    def _refine(
        self, trigger: Trigger, number: Any, pairs: Sequence[Pair], fired: Sequence[AnyFiring]
    ) -> None:
        """Groups of an extent that have fired get other states, or are removed."""
        refinement = trigger.refinement
        if refinement.evicts:
            self._extents.remove(number, keys_of(pairs))
        elif refinement.discards:
            self._extents.reset(number, keys_of(pairs))
        elif refinement.changes:
            for (key, state), firing in zip(pairs, fired, strict=True):
                assert isinstance(firing, Firing), "own refinements look at single groups"
                refined = refinement.refined(self._aggregation, firing, state)
                self._extents.put(key, number, refined)


def _groups(firing: AnyFiring) -> int:
    """How many groups fire."""
    return len(firing.rows) if isinstance(firing, FiringRows) else 1
