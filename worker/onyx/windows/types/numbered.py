"""Window types `fixed`, `sliding` and `global`: extents with numbers, known before segments come.

States are held by extent and then by group. So a batch that lies in one extent is folded into one
dict, the watermark passes an extent with all its groups at once, and firing it takes no search.

Where no trigger looks at single segments, a batch is split by extent and folded as a whole, which
gives the same as one by one: states change in the order of the segments, and nothing else happens.
Segments that are only counted are counted apart, and get into the states when somebody looks: one
small dict, which stays in the cache, instead of the states of all groups and a list of those that
have changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from onyx.flow.columns.record_batch import Columns
from onyx.keystate.buckets import Bucket, Frozen, Pair, keys_of, pages
from onyx.keystate.coded import Groups, Keyed, Values, chosen, different, rows
from onyx.keystate.dues import Dues
from onyx.keystate.extents import Number
from onyx.keystate.groups import Keys, load_keys
from onyx.keystate.records import (
    AddUpdates,
    ClearExtent,
    DeleteGroups,
    Fired,
    FiredGroups,
    Record,
    Records,
    SetArrays,
    SetStates,
    StatesRecord,
)
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.numbers import Count
from onyx.windows.assigning.assigner import Assigner, BatchPart, OneExtent, Tiling, by_extent
from onyx.windows.firing import AnyFiring, FiringPages
from onyx.windows.prepared import WindowInput
from onyx.windows.triggers.timers import Unit
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.types.extent_states import ExtentChanges, ExtentStates
from onyx.windows.types.extents import GONE, Extents, Fire, OnPeer, Wanted
from onyx.windows.types.waiting import Passing, ShardIndex, WaitingExtents
from onyx.windows.units import standard


class NumberedExtents(Extents[int]):
    """An extent is its number, which is also its name in the state log."""

    def __init__(self, on_peer: OnPeer, assigner: Assigner) -> None:
        super().__init__(on_peer)
        self._assigner = assigner
        self._holder = on_peer.holder
        if not assigner.bounded:
            self._lateness = None
        self._changes = ExtentChanges(self._window, self._aggregation, self._shards)
        self._buckets = ExtentStates(on_peer, self._changes)
        self._waiting = WaitingExtents(on_peer, assigner.bounded, assigner.bounds, self._buckets)
        self._expiring: Dues[int] = Dues()
        self._indexed = self._holder.in_memory and not self._buckets.in_arrays
        self._index = ShardIndex(self._shards, self._buckets)
        """Used of states in dicts that are in memory."""
        self._folding = Folding(
            self._aggregation,
            self._holder.in_memory,
            self._bucket,
            self._buckets,
            self._changes,
            self._waiting,
        )

    # Segments come.

    def add(self, taken: WindowInput, keys: Keyed) -> list[int]:
        """A batch as a whole, split by extent."""
        self._index.invalidate()
        coordinates = () if taken.coordinates is None else taken.coordinates
        parts, late = self._without_late(self._assigner.split(coordinates, taken.ints), len(keys))
        for part in by_extent(parts):
            mine = chosen(keys, part.indices)
            values = mine if self._folding.counts else chosen(taken.extracted, part.indices)
            for number in part.numbers:
                self._folding.add(number, mine, values)
        return late

    def add_one(self, taken: WindowInput, index: int, key: Any) -> Sequence[int]:
        """One segment, because triggers or the watermarks of shards look at each."""
        self._index.invalidate()
        numbers = self._assigner.numbers(
            0 if taken.coordinates is None else taken.coordinates[index]
        )
        if self._lateness is not None:
            watermark = self._watermarks.of(self._shards[key])
            numbers = [number for number in numbers if not self._is_past(number, watermark)]
        for number in numbers:
            self._folding.add_one(number, key, taken.extracted[index])
        return numbers

    def settle(self) -> None:
        """Get all that was added into the states."""
        self._folding.settle()

    def _without_late(self, parts: list[BatchPart], many: int) -> tuple[list[BatchPart], list[int]]:
        """Parts of extents that are open, and the indices of segments that none of them has."""
        if self._lateness is None:
            return parts, []
        kept: list[BatchPart] = []
        late: list[int] = []
        for part in parts:
            open_ = tuple(n for n in part.numbers if not self._is_past(n, self._watermarks.task))
            if open_:
                kept.append(BatchPart(open_, part.indices))
            else:
                late += range(many) if part.indices is None else part.indices.tolist()
        return kept, sorted(late)

    def _bucket(self, number: int) -> Bucket:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets.begin(number)
            if self._lateness is not None:
                self._expiring.put(number, self.bounds(number)[1] + self._lateness + 1)
        return bucket

    def _is_past(self, number: int, watermark: Number) -> bool:
        """Whether segments of an extent are late."""
        assert self._lateness is not None
        return self.bounds(number)[1] + self._lateness < watermark

    def is_late(self, record: StatesRecord) -> bool:
        """Whether the extent is past, for a shard at least."""
        marks = self._watermarks
        latest = max(marks.task, *marks.own.values()) if marks.own else marks.task
        return self._lateness is not None and self._is_past(record.extent, latest)

    # Extents are looked at and changed.

    def find(self, key: Any, number: int | None = None) -> Sequence[int]:
        """All extents of a group, or the one of a number if the group has it."""
        if number is not None:
            return [number] if key in self._buckets.get(number, {}) else []
        return [number for number, bucket in self._buckets.items() if key in bucket]

    def everything(self, wanted: Wanted) -> Iterator[tuple[Any, int]]:
        """Each group with each of its extents that is wanted, in any order."""
        for number, bucket in list(self._buckets.items()):
            if not wanted(*self.bounds(number)):
                continue
            for key in bucket.groups():
                yield key, number

    def size(self) -> int:
        """How many groups all extents have."""
        return sum(map(len, tuple(self._buckets.values())))

    def units(self, shards: Collection[int]) -> Callable[[int], Iterator[Unit]]:
        """Each group of each extent."""
        held = sorted(self._buckets.items())
        parts = [(number, bucket.by_shard(shards)) for number, bucket in held]
        return lambda shard: ((number, key) for number, keys in parts for key in keys(shard))

    def bounds(self, extent: int) -> tuple[Number, Number]:
        """First and last coordinate of an extent."""
        return self._assigner.bounds(extent)

    def get(self, key: Any, extent: int) -> Any:
        """The state of a group, or GONE."""
        bucket = self._buckets.get(extent)
        return GONE if bucket is None else bucket.get(key, GONE)

    def get_all(self, keys: Sequence[Any], extent: int) -> list[Any]:
        """The state of each of some groups in an extent, or GONE."""
        bucket = self._buckets.get(extent)
        return [GONE] * len(keys) if bucket is None else bucket.get_all(keys, GONE)

    def put(self, key: Any, extent: int, state: Any) -> None:
        """Give a group that an extent has another state; GONE removes the group."""
        if state is GONE:
            self.remove(extent, [key])
            return
        self._buckets.put(extent, key, state)
        self._waiting.changed(extent, [key])

    def pairs(self, number: int, keys: Sequence[Any]) -> Sequence[Pair]:
        """The groups of these that an extent has, with their states."""
        return self._buckets[number].pairs(keys) if number in self._buckets else []

    def reset(self, extent: int, keys: Collection[Any]) -> None:
        """Give groups that an extent has the first state."""
        if keys:
            self._buckets.reset(extent, keys)
            self._waiting.changed(extent, keys)

    def remove(self, extent: int, keys: Collection[Any]) -> None:
        """An extent loses groups that it has."""
        if not keys:
            return
        self._buckets.remove(extent, keys)
        self._waiting.removed(extent, keys)
        if not self._buckets[extent]:
            self._forget(extent)

    def _clear(self, number: int) -> None:
        """An extent goes with all its groups."""
        self._changes.cleared(number, self._buckets.shards_had(number))
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._buckets.pop(number).free()
        self._expiring.remove(number)
        self._waiting.forget(number)

    # Triggers that fire at the end for what has changed.

    def unfired(self, trigger: str, key: Any, extent: int) -> bool:
        """Whether a group that an extent has got segments since a trigger fired for it last."""
        return self._waiting.has(trigger, extent, key)

    def have_fired(self, trigger: str, extent: int, keys: Sequence[Any]) -> None:
        """A trigger of which that is noted fires for groups of an extent."""
        self._waiting.have_fired(trigger, extent, keys)

    # Watermarks pass.

    def pass_watermark(
        self, trigger: Trigger, watermark: Number, shard: int | None, fire: Fire[int]
    ) -> FiringPages:
        """Have extents fire that a watermark has passed, and that got segments since they fired
        last: those of all shards, or of one. A page may have several extents, or a part of one."""
        passing = self._waiting.of(trigger.name, shard)
        if passing is None:
            return
        page: list[AnyFiring] = []
        groups = 0
        for number in passing.passed(watermark):
            bucket, waiting = self._buckets[number], passing.waiting[number]
            keys = None if waiting is None else bucket.present(waiting)
            its = len(bucket) if keys is None else len(keys)
            if groups + its > self._page_max:
                yield page
                page, groups = [], 0
            if its > self._page_max:
                yield from self._fire_in_parts(trigger, passing, number, keys, fire)
                continue
            passing.take(number)
            if its:
                page += fire(number, bucket.pairs(keys))
                groups += its
                self._have_fired(trigger, passing, number, keys)
        yield page

    def _have_fired(
        self, trigger: Trigger, passing: Passing, number: int, keys: Collection[Any] | None
    ) -> None:
        """Groups of an extent have fired, all at once; None: all that it has."""
        if not trigger.forgets:
            passing.keep(number)
        elif keys is None or len(keys) == len(self._buckets[number]):
            self._clear(number)
        else:
            self.remove(number, keys)

    def _fire_in_parts(
        self,
        trigger: Trigger,
        passing: Passing,
        number: int,
        keys: Sequence[Any] | None,
        fire: Fire[int],
    ) -> FiringPages:
        """More groups of an extent fire than a page may have; each part is recorded by itself."""
        bucket = self._buckets[number]
        parts: Iterable[tuple[int | None, Sequence[Pair]]]
        if keys is None or trigger.forgets:
            passing.take(number)
        if keys is None:
            parts = bucket.parts(self._page_max)
        else:
            parts = ((None, bucket.pairs(part)) for part in pages(keys, self._page_max))
        for shard, states in parts:
            mine = keys_of(states)
            page = fire(number, states)
            if trigger.forgets:
                self.remove(number, mine)
            else:
                passing.part(number, shard, mine)
            yield page
        if not trigger.forgets:
            passing.through(number)

    def expire(self, watermark: Number, shard: int | None) -> None:
        """Forget extents that a watermark has passed by more than the lateness allowed. Extents go
        as a whole, unless shards differ in their watermarks."""
        if self._lateness is None:
            return
        if shard is None and not self._watermarks.own:
            for number in self._expiring.take(watermark):
                if number in self._buckets:
                    self._clear(number)
            return
        earliest = self._expiring.earliest()
        if earliest is None or earliest > watermark:
            return
        for number in [each for each in self._buckets if self._is_past(each, watermark)]:
            of = self._watermarks.of
            for key in list(self._buckets[number].groups()):
                if self._is_past(number, of(self._shards[key])):
                    self.remove(number, [key])

    # State is recorded and restored.

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._changes.take(records, self._buckets)
        self._waiting.take_changes(records)

    def states(self, frozen: Frozen) -> Callable[[int], Iterator[Record]]:
        """What gives the states of a shard, as they are frozen."""
        return self._buckets.records(frozen)

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add what has fired of extents that stay."""
        self._waiting.snapshot(shards, records)

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record of `take_changes`, `states` or `snapshot`."""
        match record:
            case SetStates(extent=number) | SetArrays(extent=number):
                self._bucket(number)
                self._restored(shard, number, self._buckets.restore(shard, record))
            case AddUpdates(extent=number):
                self._bucket(number)
                self._restored(shard, number, [self._buckets.update_group(record)])
            case DeleteGroups(extent=number, groups=groups):
                self._restore_without(shard, number, load_keys(groups))
            case ClearExtent(extent=number):
                self._restore_without(shard, number, None)
            case Fired() | FiredGroups():
                self._waiting.restore(shard, record, self._present(shard, record.extent))

    def merge(self, record: StatesRecord) -> None:
        """Add states that were folded elsewhere from other segments."""
        self._index.invalidate()
        self._bucket(record.extent)
        self._waiting.touch(record.extent, self._buckets.merge(record))

    def _restored(self, shard: int, number: int, keys: Iterable[Any]) -> None:
        if self._indexed:
            self._index.of(shard).setdefault(number, {}).update(dict.fromkeys(keys))
        self._waiting.touch(number, keys)

    def _restore_without(self, shard: int, number: int, keys: Iterable[Any] | None) -> None:
        """An extent of a shard has had groups that are gone; None: all of the shard."""
        if number not in self._buckets:
            return
        if self._indexed:
            indexed = self._index.of(shard).get(number, {})
            keys = list(indexed) if keys is None else keys
            for key in keys:
                indexed.pop(key, None)
        self._buckets.forget_groups(number, shard, keys)
        if not self._buckets[number]:
            self._forget(number)

    def _present(self, shard: int, number: int) -> Iterable[Any]:
        """Groups of an extent that are in a shard."""
        if self._indexed:
            return self._index.of(shard).get(number, ())
        return self._buckets[number].groups([shard]) if number in self._buckets else ()

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now, with what has changed in them."""
        self._index.invalidate()
        self._buckets.drop(shards)
        for number in [number for number, bucket in self._buckets.items() if not bucket]:
            self._forget(number)
        self._waiting.drop(shards)


class Folding:
    """The folding of one window on one peer."""

    def __init__(
        self,
        aggregation: Aggregation,
        in_memory: bool,
        bucket: Callable[[int], Bucket],
        states: ExtentStates,
        changes: ExtentChanges,
        waiting: WaitingExtents,
    ) -> None:
        """`bucket` gives the states of an extent, and begins it if need be."""
        self._aggregation = aggregation
        self._bucket = bucket
        self._states = states
        self._changes = changes
        self._waiting = waiting
        self.counts = isinstance(aggregation, Count) and in_memory and not states.in_arrays
        """Whether segments are only counted."""
        self._counted: defaultdict[int, Counter[Any]] = defaultdict(Counter)
        """Segments of each group that are not in its state yet, by extent."""

    def add(self, number: int, keys: Keyed, extracted: Values) -> None:
        """Apply segments to one extent."""
        if not self.counts:
            self._fold(number, keys, extracted)
        elif isinstance(keys, Groups):
            self._counted[number].update(dict(zip(keys.keys, keys.counts(), strict=True)))
        else:
            self._counted[number].update(keys)

    def add_one(self, number: int, key: Any, extracted: Any) -> None:
        """Adds for one segment, faster."""
        touched: Keys = {key: None}
        if not self._aggregation.closed:
            self._fold(number, [key], [extracted])
            return
        bucket, aggregation = self._bucket(number), self._aggregation
        state = bucket[key]
        try:
            state = aggregation.apply(state, aggregation.create(state, extracted))
        except TypeError as error:
            raise aggregation.refuse([extracted], error) from error
        self._states.put(number, key, state)
        bucket.used(touched)
        self._waiting.touch(number, touched)

    def settle(self) -> None:
        """Get what was only counted into the states."""
        if not self._counted:
            return
        assert isinstance(self._aggregation, Count)
        for number, counts in self._counted.items():
            bucket = self._bucket(number)
            states = self._aggregation.add(bucket, counts)
            bucket.used(states)
            self._waiting.touch(number, states)
            self._changes.states(number, states)
        self._counted.clear()

    def _fold(self, number: int, keys: Keyed, extracted: Values) -> None:
        self._bucket(number)
        in_arrays = self._states.fold(number, keys, extracted)
        if in_arrays is not None:
            self._waiting.touch(number, in_arrays)
            return
        bucket, touched = self._states[number], different(keys)
        try:
            if not self._aggregation.closed:
                self._changes.fold(number, bucket, *self._aggregation.steps(keys, extracted))
            elif isinstance(keys, Groups) or isinstance(extracted, Columns):
                groups = keys if isinstance(keys, Groups) else Groups.of_rows(keys)
                self._aggregation.fold_groups(bucket, groups, extracted)
                self._changes.states(number, touched)
            else:
                self._aggregation.fold(bucket, keys, rows(extracted))
                self._changes.states(number, touched)
        except TypeError as error:
            raise self._aggregation.refuse(rows(extracted), error) from error
        bucket.used(touched)
        self._waiting.touch(number, touched)


class SlidingExtents(NumberedExtents):
    """Extents may overlap: a segment is in each that has its coordinate."""

    def __init__(self, on_peer: OnPeer) -> None:
        window = on_peer.compiled.window
        assert window.range is not None, "checked when the job is parsed"
        width = standard(window.range)
        slide = width if window.slide is None else standard(window.slide)
        super().__init__(on_peer, Tiling(window.min_value, width, slide))


class FixedExtents(SlidingExtents):
    """Extents lie side by side."""


class GlobalExtents(NumberedExtents):
    """Segments need no coordinate."""

    bounded = False

    def __init__(self, on_peer: OnPeer) -> None:
        super().__init__(on_peer, OneExtent())

    def look_up(self, keys: Sequence[Any]) -> list[Any]:
        """The state of each of some groups, or GONE."""
        return self.get_all(keys, OneExtent.NUMBER)
