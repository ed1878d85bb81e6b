"""Fixed, sliding and global windows: extents that are known by number, before segments come.

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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from onyx.flow.batch import Segment
from onyx.windows.aggregations import Count
from onyx.windows.bucket_changes import BucketChanges
from onyx.windows.buckets import Bucket, Frozen, Holder
from onyx.windows.compile import CompiledWindow
from onyx.windows.dues import Dues
from onyx.windows.firing import Firing, Number
from onyx.windows.groups import Shards, dump_key, group_value, load_key, load_keys
from onyx.windows.passing import Keys, Passing
from onyx.windows.records import Record, Records, tell
from onyx.windows.splitting import Part, by_extent, split
from onyx.windows.triggers import CompiledTrigger
from onyx.windows.window_state import WindowState

GLOBAL = 1
"""Number of the only extent of a global window."""
EVERYWHERE = (float("-inf"), float("inf"))


class BucketWindow(WindowState):
    """A fixed, sliding or global window."""

    def __init__(
        self, compiled: CompiledWindow, grouped: bool, shards: Shards, holder: Holder
    ) -> None:
        super().__init__(compiled, grouped, shards, holder)
        self._form = self._aggregation.form()
        self._tiling = compiled.tiling
        self._places = compiled.places
        self._buckets: dict[int, Bucket] = {}
        self._passing: dict[tuple[str, int | None], Passing] = {}
        """By trigger, and by shard where the segments are the watermark."""
        self._watching = [each for each in self._triggers if each.by_watermark]
        if self._tiling is None:
            self._watching = []
        if not compiled.watermark_of_segments:
            for trigger in self._watching:
                self._passing[trigger.name, None] = Passing()
        self._expiring: Dues[int] = Dues()
        self._changes = BucketChanges(compiled.window.id, self._aggregation)
        self._counting = isinstance(self._aggregation, Count) and holder.in_memory
        self._counted: defaultdict[int, Counter[Any]] = defaultdict(Counter)
        """Segments of each group that are not in its state yet, by extent."""
        self._index: dict[int, dict[int, Keys]] | None = {}
        """Groups by shard and extent while shards are being restored; None when not known. Not
        kept of states that are not in memory."""

    # Batches.

    def add(
        self, segments: Sequence[Segment], keys: Sequence[Any], now_ms: int
    ) -> tuple[list[tuple[int, Firing]], list[int]]:
        self._index = None
        if self._by_segment or self._shard_watermarks:
            return self._add_each(segments, keys, now_ms)
        return [], self._add_whole(segments, keys, now_ms)

    def _add_whole(
        self, segments: Sequence[Segment], keys: Sequence[Any], now_ms: int
    ) -> list[int]:
        """A batch as a whole; gives the indices of late segments."""
        extracted = self._aggregation.extract(segments)
        late: list[int] = []
        if self._places is None or self._tiling is None:
            parts = [Part((GLOBAL,), None)]
        else:
            places, ints = self._places.of(segments)
            parts = split(self._tiling, places, ints)
            parts, late = self._without_late(parts, len(keys))
            if self._tiling.slide < self._tiling.width:
                parts = by_extent(parts)
        for part in parts:
            mine, values = keys, extracted
            if part.indices is not None:
                mine = [keys[index] for index in part.indices]
                values = [extracted[index] for index in part.indices]
            if self._counting:
                self._start_timers(mine, now_ms)
                for number in part.numbers:
                    self._counted[number].update(mine)
            else:
                touched: Keys = dict.fromkeys(mine)
                self._start_timers(touched, now_ms)
                for number in part.numbers:
                    self._fold(number, mine, values, touched)
        return late

    def settle(self) -> None:
        if not self._counted:
            return
        assert isinstance(self._aggregation, Count)
        for number, counts in self._counted.items():
            bucket = self._bucket(number)
            states = self._aggregation.add(bucket, counts)
            bucket.used(states)
            self._touch(number, states)
            self._changes.states(number, states)
        self._counted.clear()

    def _without_late(self, parts: list[Part], many: int) -> tuple[list[Part], list[int]]:
        if self.compiled.lateness is None:
            return parts, []
        kept: list[Part] = []
        late: list[int] = []
        for part in parts:
            open_ = tuple(n for n in part.numbers if not self._is_past(n, self._watermark))
            if open_:
                kept.append(Part(open_, part.indices))
            else:
                late += range(many) if part.indices is None else part.indices
        return kept, sorted(late)

    def _fold(
        self, number: int, keys: Sequence[Any], extracted: Sequence[Any], touched: Keys
    ) -> None:
        """Apply segments to one extent."""
        bucket = self._bucket(number)
        try:
            if self._aggregation.closed:
                self._aggregation.fold(bucket, keys, extracted)
                self._changes.states(number, touched)
            else:
                self._changes.fold(number, bucket, keys, extracted)
        except TypeError as error:
            raise self._aggregation.refuse(extracted, error) from error
        bucket.used(touched)
        self._touch(number, touched)

    def _touch(self, number: int, touched: Mapping[Any, Any]) -> None:
        if not self._watching:
            return
        bounds = self._bounds(number)
        if not self.compiled.watermark_of_segments:
            for trigger in self._watching:
                self._passing[trigger.name, None].touch(number, trigger.due(*bounds, 0), touched)
            return
        for key in touched:
            shard = self._shard(key)
            for trigger in self._watching:
                passing = self._passing.get((trigger.name, shard))
                if passing is None:
                    passing = self._passing[trigger.name, shard] = Passing(listed=True)
                passing.touch(number, trigger.due(*bounds, 0), {key: None})

    def _bucket(self, number: int) -> Bucket:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = self._holder.bucket(self._form, self._shards)
            if self.compiled.lateness is not None and self._tiling is not None:
                _, upper = self._bounds(number)
                self._expiring.put(number, upper + self.compiled.lateness + 1)
        return bucket

    # One by one.

    def _add_each(
        self, segments: Sequence[Segment], keys: Sequence[Any], now_ms: int
    ) -> tuple[list[tuple[int, Firing]], list[int]]:
        """Segment by segment, because triggers or the watermarks of shards look at each."""
        self.settle()
        extracted = self._aggregation.extract(segments)
        places: Sequence[Number] = [0] * len(segments)
        if self._places is not None:
            places, _ = self._places.of(segments)
        fired: list[tuple[int, Firing]] = []
        late: list[int] = []
        for index, (key, place) in enumerate(zip(keys, places, strict=True)):
            numbers = self._open_numbers(place, key)
            if not numbers:
                late.append(index)
                continue
            touched: Keys = {key: None}
            self._start_timers(touched, now_ms)
            for number in numbers:
                self._fold_one(number, key, extracted[index], touched)
            woken = self._on_segment(key, numbers, segments[index], place)
            fired += [(index, firing) for firing in woken]
        return fired, late

    def _fold_one(self, number: int, key: Any, extracted: Any, touched: Keys) -> None:
        """`_fold` for one segment, which is all that this saves."""
        if not self._aggregation.closed:
            self._fold(number, [key], [extracted], touched)
            return
        bucket, aggregation = self._bucket(number), self._aggregation
        state = bucket[key]
        try:
            bucket[key] = aggregation.apply(state, aggregation.create(state, extracted))
        except TypeError as error:
            raise aggregation.refuse([extracted], error) from error
        bucket.used(touched)
        self._changes.states(number, touched)
        if self._watching:
            self._touch(number, touched)

    def _open_numbers(self, place: Number, key: Any) -> Sequence[int]:
        """The extents of a place that are not past."""
        if self._tiling is None:
            return (GLOBAL,)
        numbers = self._tiling.numbers(place)
        if self.compiled.lateness is None:
            return numbers
        watermark = self._watermark_of(self._shard(key))
        return [number for number in numbers if not self._is_past(number, watermark)]

    def _is_past(self, number: int, watermark: Number) -> bool:
        """Whether segments of an extent are late."""
        assert self.compiled.lateness is not None
        return self._bounds(number)[1] + self.compiled.lateness < watermark

    # Watermarks.

    def _pass(self, trigger: CompiledTrigger, watermark: Number, shard: int | None) -> list[Firing]:
        passing = self._passing.get((trigger.name, shard))
        fired: list[Firing] = []
        if passing is None:
            return fired
        for number, waiting in passing.take(watermark):
            bucket = self._buckets.get(number)
            if bucket is None:
                continue
            keys = None if waiting is None else [key for key in waiting if key in bucket]
            if keys is None or keys:
                self._fire_extent(fired, trigger, passing, number, keys, watermark)
        return fired

    def _fire_extent(
        self,
        fired: list[Firing],
        trigger: CompiledTrigger,
        passing: Passing,
        number: int,
        keys: Sequence[Any] | None,
        watermark: Number,
    ) -> None:
        """Groups of an extent that has been passed fire, all at once when nothing differs; None:
        all that it has."""
        bucket = self._buckets[number]
        refinement = trigger.refinement
        if refinement.calls or (refinement.discards and not trigger.forgets):
            for key in bucket.groups() if keys is None else keys:
                self._fire(fired, trigger, "watermark", key, number, None)
        else:
            states: Iterable[tuple[Any, Any]] = (
                bucket.items() if keys is None else ((key, bucket[key]) for key in keys)
            )
            own, view, shards = trigger.trigger, self._aggregation.view, self._shards
            window, grouped, bounds = self._window, self._grouped, self._bounds(number)
            fired += [
                Firing(
                    window, own, "watermark", shards[key], grouped, group_value(key), *bounds,
                    view(state), None, watermark,
                )
                for key, state in states
            ]  # fmt: skip
        if not trigger.forgets:
            passing.keep(number)
        elif number not in self._buckets:
            return
        elif keys is None or len(keys) == len(bucket):
            self._clear(number)
        else:
            for key in keys:
                self._remove(key, number)

    def _expire(self, watermark: Number, shard: int | None) -> None:
        if self.compiled.lateness is None or self._tiling is None:
            return
        if shard is None and not self._shard_watermarks:
            for number in self._expiring.take(watermark):
                if number in self._buckets:
                    self._clear(number)
            return
        earliest = self._expiring.earliest()
        if earliest is None or earliest > watermark:
            return
        for number in [each for each in self._buckets if self._is_past(each, watermark)]:
            for key in [key for key in self._buckets[number] if self._is_over(key, number)]:
                self._remove(key, number)

    def _is_over(self, key: Any, number: int) -> bool:
        return self._is_past(number, self._watermark_of(self._shard(key)))

    # Extents.

    def _extents(self, key: Any) -> list[int]:
        return [number for number, bucket in self._buckets.items() if key in bucket]

    def _everything(self, shards: Collection[int] | None = None) -> Iterator[tuple[Any, int]]:
        for number, bucket in list(self._buckets.items()):
            for key in bucket.groups(shards):
                yield key, number

    def _alive(self, key: Any, extent: int) -> bool:
        return key in self._buckets.get(extent, {})

    def _bounds(self, extent: int) -> tuple[Number, Number]:
        return EVERYWHERE if self._tiling is None else self._tiling.bounds(extent)

    def _get(self, key: Any, extent: int) -> Any:
        return self._buckets[extent][key]

    def _set(self, key: Any, extent: int, state: Any) -> None:
        self._buckets[extent][key] = state
        self._changes.states(extent, {key: None})
        for passing in self._passing.values():
            if extent in passing.fired:
                passing.changed[extent] = None

    def _remove(self, key: Any, extent: int) -> None:
        bucket = self._buckets[extent]
        del bucket[key]
        self._changes.states(extent, {key: None})
        if not bucket:
            self._forget(extent)

    def _clear(self, number: int) -> None:
        """An extent goes with all its groups."""
        shards = self._shards
        in_memory = self._holder.in_memory
        had = (shards[key] for key in self._buckets[number]) if in_memory else shards.known
        self._changes.cleared(number, dict.fromkeys(had))
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._buckets.pop(number).free()
        self._expiring.remove(number)
        for passing in self._passing.values():
            passing.forget(number)

    # Changes.

    def _take_extents(self, records: Records) -> None:
        self._changes.take(records, self._buckets, self._shards)
        for (name, own), passing in self._passing.items():
            for number in passing.changed:
                self._tell_fired(records, name, passing, number, own, None)
            passing.changed.clear()

    def _tell_fired(
        self,
        records: Records,
        name: str,
        passing: Passing,
        number: int,
        own: int | None,
        shards: Collection[int] | None,
    ) -> None:
        """Which groups of an extent that is kept have fired: all but those listed.

        Of some shards, or all; of those, only the trigger's `own` where the segments are the
        watermark.
        """
        waiting = passing.waiting.get(number) or {}
        told: dict[int, list[Any]] = {}
        for key in self._buckets[number]:
            shard = self._shard(key)
            if own in (None, shard) and (shards is None or shard in shards):
                listed = told.setdefault(shard, [])
                if key in waiting:
                    listed.append(dump_key(key))
        for shard, listed in told.items():
            tell(records, shard, ["fired", self._window.id, name, number, listed])

    def _snapshot_extents(self, shards: Collection[int], records: Records) -> None:
        for number, bucket in self._buckets.items():
            held = bucket if self._holder.in_memory else dict(bucket.items())
            self._changes.tell(records, number, held, bucket, self._shards, shards)

    def _snapshot_rest(self, shards: Collection[int], records: Records) -> None:
        for (name, own), passing in self._passing.items():
            for number in passing.fired:
                self._tell_fired(records, name, passing, number, own, shards)
        super()._snapshot_rest(shards, records)

    def _freeze_extents(self, frozen: Frozen) -> Callable[[int], Iterator[Record]]:
        window, buckets = self._window.id, list(self._buckets.items())

        def records(shard: int) -> Iterator[Record]:
            for number, bucket in buckets:
                for keys, states in frozen.pages(bucket, shard):
                    yield ["set", window, number, keys, states]

        return records

    def _restore_extents(self, shard: int, record: Record) -> None:
        kind, number = record[0], record[2]
        if kind == "fired":
            self._restore_fired(shard, record)
        elif kind == "set":
            bucket = self._bucket(number)
            keys = load_keys(record[3])
            bucket.update(zip(keys, map(self._aggregation.load, record[4]), strict=True))
            self._restored_touch(shard, number, dict.fromkeys(keys))
        elif kind == "add":
            bucket, key = self._bucket(number), load_key(record[3])
            state = bucket[key]
            for update in record[4]:
                state = self._aggregation.apply(state, update)
            bucket[key] = state
            self._restored_touch(shard, number, {key: None})
        elif kind == "delete":
            for data in record[3]:
                self._restored_remove(shard, number, load_key(data))
        elif kind == "clear":
            for key in list(self._of_shard(shard, number)):
                self._restored_remove(shard, number, key)

    def _restored_touch(self, shard: int, number: int, keys: Keys) -> None:
        if self._holder.in_memory:
            self._indexed(shard).setdefault(number, {}).update(keys)
        self._touch(number, keys)

    def _restored_remove(self, shard: int, number: int, key: Any) -> None:
        if self._holder.in_memory:
            self._indexed(shard).get(number, {}).pop(key, None)
        bucket = self._buckets.get(number)
        if bucket is not None and key in bucket:
            del bucket[key]
            if not bucket:
                self._forget(number)

    def _restore_fired(self, shard: int, record: Record) -> None:
        _, _, name, number, listed = record
        by_shard = shard if self.compiled.watermark_of_segments else None
        passing = self._passing.get((name, by_shard))
        if passing is None or number not in self._buckets:
            return
        waiting = {load_key(data): None for data in listed}
        mine = self._of_shard(shard, number)
        fired = {key: None for key in mine if key not in waiting}
        passing.settle(number, self._buckets[number], fired)

    def _of_shard(self, shard: int, number: int) -> Iterable[Any]:
        """Groups of an extent that are in a shard."""
        if self._holder.in_memory:
            return self._indexed(shard).get(number, ())
        return self._buckets[number].groups([shard]) if number in self._buckets else ()

    def _indexed(self, shard: int) -> dict[int, Keys]:
        """Groups of a shard by extent, so that records about a whole extent need no search."""
        if self._index is None:
            self._index = {}
            for key, number in self._everything():
                held = self._index.setdefault(self._shard(key), {})
                held.setdefault(number, {})[key] = None
        return self._index.setdefault(shard, {})

    def _drop_extents(self, shards: Collection[int]) -> None:
        self._index = None
        for number, bucket in list(self._buckets.items()):
            gone = [key for key in bucket if self._shards[key] in shards]
            for key in gone:
                del bucket[key]
            self._changes.drop(number, gone, shards)
            if not bucket:
                self._forget(number)
        for name, shard in [each for each in self._passing if each[1] in shards]:
            del self._passing[name, shard]
