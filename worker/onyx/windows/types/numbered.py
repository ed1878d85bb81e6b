"""Fixed, sliding and global windows: batches fall into extents, and the watermark passes these.

Where no trigger looks at single segments, a batch is split by extent and folded as a whole, which
gives the same as one by one: states change in the order of the segments, and nothing else happens.
Segments that are only counted are counted apart, and get into the states when somebody looks: one
small dict, which stays in the cache, instead of the states of all groups and a list of those that
have changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from onyx.flow.batch import Segment
from onyx.windows.aggregations.aggregation import Count
from onyx.windows.assigning.splitting import Part, by_extent, split
from onyx.windows.buckets import Holder, Pair, pages
from onyx.windows.compile import CompiledWindow
from onyx.windows.firing import Firing, Number, Runs
from onyx.windows.groups import Shards, group_value
from onyx.windows.prepared import Taken
from onyx.windows.triggers.trigger import CompiledTrigger
from onyx.windows.types.numbered_base import BucketExtents
from onyx.windows.types.passing import Keys, Passing

GLOBAL = 1
"""Number of the only extent of a global window."""


class BucketWindow(BucketExtents):
    """A fixed, sliding or global window."""

    def __init__(
        self,
        compiled: CompiledWindow,
        grouped: bool,
        shards: Shards,
        holder: Holder,
        run_max: int,
    ) -> None:
        super().__init__(compiled, grouped, shards, holder, run_max)
        self._counting = isinstance(self._aggregation, Count) and holder.in_memory
        self._counted: defaultdict[int, Counter[Any]] = defaultdict(Counter)
        """Segments of each group that are not in its state yet, by extent."""

    # Batches.

    def add(
        self, segments: Sequence[Segment], taken: Taken, keys: Sequence[Any], now_ms: int
    ) -> tuple[list[tuple[int, Firing]], list[int]]:
        self._index = None
        if self._by_segment or self._shard_watermarks:
            return self._add_each(segments, taken, keys, now_ms)
        return [], self._add_whole(taken, keys, now_ms)

    def _add_whole(self, taken: Taken, keys: Sequence[Any], now_ms: int) -> list[int]:
        """A batch as a whole; gives the indices of late segments."""
        extracted = taken.extracted
        late: list[int] = []
        if taken.places is None or self._tiling is None:
            parts = [Part((GLOBAL,), None)]
        else:
            parts = split(self._tiling, taken.places, taken.ints)
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

    # One by one.

    def _add_each(
        self, segments: Sequence[Segment], taken: Taken, keys: Sequence[Any], now_ms: int
    ) -> tuple[list[tuple[int, Firing]], list[int]]:
        """Segment by segment, because triggers or the watermarks of shards look at each."""
        self.settle()
        extracted = taken.extracted
        places = [0] * len(segments) if taken.places is None else taken.places
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

    def _pass(self, trigger: CompiledTrigger, watermark: Number, shard: int | None) -> Runs:
        passing = self._passing.get((trigger.name, shard))
        if passing is None:
            return
        run: list[Firing] = []
        for number in passing.passed(watermark):
            bucket, waiting = self._buckets[number], passing.waiting[number]
            keys = None if waiting is None else [key for key in waiting if key in bucket]
            many = len(bucket) if keys is None else len(keys)
            if len(run) + many > self._run_max:
                yield run
                run = []
            if many > self._run_max:
                yield from self._fire_in_parts(trigger, passing, number, keys, watermark)
                continue
            passing.take(number)
            if many:
                run += self._fire_whole(trigger, passing, number, keys, watermark)
        yield run

    def _fire_whole(
        self,
        trigger: CompiledTrigger,
        passing: Passing,
        number: int,
        keys: Sequence[Any] | None,
        watermark: Number,
    ) -> list[Firing]:
        """Groups of an extent that has been passed fire, all at once; None: all that it has."""
        bucket = self._buckets[number]
        states: Iterable[Pair] = (
            bucket.items() if keys is None else ((key, bucket[key]) for key in keys)
        )
        fired = self._fire_states(trigger, number, states, watermark)
        if not trigger.forgets:
            passing.keep(number)
        elif keys is None or len(keys) == len(bucket):
            self._clear(number)
        else:
            self._remove_all(keys, number)
        return fired

    def _fire_in_parts(
        self,
        trigger: CompiledTrigger,
        passing: Passing,
        number: int,
        keys: Sequence[Any] | None,
        watermark: Number,
    ) -> Runs:
        """The same for more groups than may fire at once; each part is told for itself."""
        bucket = self._buckets[number]
        parts: Iterable[tuple[int | None, list[Pair]]]
        if keys is None or trigger.forgets:
            passing.take(number)
        if keys is None:
            parts = bucket.parts(self._run_max)
        else:
            parts = (
                (None, [(key, bucket[key]) for key in part]) for part in pages(keys, self._run_max)
            )
        for shard, states in parts:
            fired = self._fire_states(trigger, number, states, watermark)
            mine = [key for key, _ in states]
            if trigger.forgets:
                self._remove_all(mine, number)
            else:
                passing.part(number, shard, mine)
            yield fired
        if not trigger.forgets:
            passing.through(number)

    def _fire_states(
        self, trigger: CompiledTrigger, number: int, states: Iterable[Pair], watermark: Number
    ) -> list[Firing]:
        """Groups of an extent fire with these states, and are refined unless they go."""
        refinement = trigger.refinement
        if not trigger.forgets and (refinement.calls or refinement.discards):
            fired: list[Firing] = []
            for key in [key for key, _ in states]:
                self._fire(fired, trigger, "watermark", key, number, None)
            return fired
        own, view, shards = trigger.trigger, self._aggregation.view, self._shards
        window, grouped, bounds = self._window, self._grouped, self._bounds(number)
        return [
            Firing(
                window, own, "watermark", shards[key], grouped, group_value(key), *bounds,
                view(state), None, watermark,
            )
            for key, state in states
        ]  # fmt: skip

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
