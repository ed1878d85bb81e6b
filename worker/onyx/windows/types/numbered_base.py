"""Extents that are known by number, before segments come: held, told, and restored.

States are held by extent and then by group. So a batch that lies in one extent is folded into one
dict, the watermark passes an extent with all its groups at once, and firing it takes no search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from onyx.windows.buckets import Bucket, Frozen, Holder
from onyx.windows.compile import CompiledWindow
from onyx.windows.dues import Dues
from onyx.windows.firing import Number
from onyx.windows.groups import Shards, dump_key, dump_keys, load_key, load_keys
from onyx.windows.records import Record, Records, tell
from onyx.windows.triggers.progress import Unit
from onyx.windows.types.numbered_changes import BucketChanges
from onyx.windows.types.passing import Half, Keys, Passing
from onyx.windows.window import WindowState

EVERYWHERE = (float("-inf"), float("inf"))


class BucketExtents(WindowState):
    """Of a fixed, sliding or global window."""

    def __init__(
        self,
        compiled: CompiledWindow,
        grouped: bool,
        shards: Shards,
        holder: Holder,
        run_max: int,
    ) -> None:
        super().__init__(compiled, grouped, shards, holder, run_max)
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
        self._index: dict[int, dict[int, Keys]] | None = {}
        """Groups by shard and extent while shards are being restored; None when not known. Not
        kept of states that are not in memory."""

    # Extents.

    def _extents(self, key: Any) -> list[int]:
        return [number for number, bucket in self._buckets.items() if key in bucket]

    def _everything(self, shards: Collection[int] | None = None) -> Iterator[tuple[Any, int]]:
        for number, bucket in list(self._buckets.items()):
            for key in bucket.groups(shards):
                yield key, number

    def _units(self, shards: Collection[int]) -> Callable[[int], Iterator[Unit]]:
        held = sorted(self._buckets.items())
        parts = [(number, bucket.by_shard(shards)) for number, bucket in held]
        return lambda shard: ((number, key) for number, keys in parts for key in keys(shard))

    def _unit(self, unit: Unit) -> Sequence[int]:
        number, key = unit
        return [number] if number is not None and self._alive(key, number) else []

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

    def _remove_all(self, keys: Collection[Any], number: int) -> None:
        """Groups go that an extent has."""
        bucket = self._buckets[number]
        bucket.remove(keys)
        self._changes.states(number, dict.fromkeys(keys))
        if not bucket:
            self._forget(number)

    def _clear(self, number: int) -> None:
        """An extent goes with all its groups."""
        shards, bucket = self._shards, self._buckets[number]
        if self._holder.in_memory:
            gone = [key for key in self._changes.noted(number) if key not in bucket]
            had = dict.fromkeys(map(shards.__getitem__, [*bucket, *gone]))
        else:
            had = dict(shards.known)
        self._changes.cleared(number, had)
        self._forget(number)

    def _forget(self, number: int) -> None:
        self._buckets.pop(number).free()
        self._expiring.remove(number)
        for passing in self._passing.values():
            passing.forget(number)

    def _bucket(self, number: int) -> Bucket:
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = self._holder.bucket(self._form, self._shards)
            if self.compiled.lateness is not None and self._tiling is not None:
                _, upper = self._bounds(number)
                self._expiring.put(number, upper + self.compiled.lateness + 1)
        return bucket

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

    # Changes.

    def _take_extents(self, records: Records) -> None:
        self._changes.take(records, self._buckets, self._shards)
        for (name, own), passing in self._passing.items():
            for number in passing.changed:
                self._tell_fired(records, name, passing, number, own, None)
            for number, keys in passing.also.items():
                self._tell_also(records, name, number, keys)
            passing.changed.clear()
            passing.also.clear()

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

    def _tell_also(self, records: Records, name: str, number: int, keys: Collection[Any]) -> None:
        """Which groups of an extent have fired, as far as it has come."""
        told: dict[int, list[Any]] = {}
        for key in keys:
            told.setdefault(self._shard(key), []).append(key)
        for shard, mine in told.items():
            tell(records, shard, ["fired-also", self._window.id, name, number, dump_keys(mine)])

    def _tell_half(
        self, records: Records, name: str, number: int, half: Half, shards: Collection[int]
    ) -> None:
        """How far an extent has come that fires in parts."""
        for shard in half.before:
            if shard in shards:
                tell(records, shard, ["fired", self._window.id, name, number, []])
        if half.shard in shards:
            self._tell_also(records, name, number, half.keys)

    def _snapshot_extents(self, shards: Collection[int], records: Records) -> None:
        for number, bucket in self._buckets.items():
            held = bucket if self._holder.in_memory else dict(bucket.items())
            self._changes.tell(records, number, held, bucket, self._shards, shards)

    def _snapshot_rest(self, shards: Collection[int], records: Records) -> None:
        for (name, own), passing in self._passing.items():
            for number in passing.fired:
                self._tell_fired(records, name, passing, number, own, shards)
            for number, half in passing.half.items():
                self._tell_half(records, name, number, half, shards)
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
        if kind in ("fired", "fired-also"):
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
        kind, _, name, number, listed = record
        by_shard = shard if self.compiled.watermark_of_segments else None
        passing = self._passing.get((name, by_shard))
        if passing is None or number not in self._buckets:
            return
        fired: Iterable[Any] = load_keys(listed)
        if kind == "fired":
            waiting = dict.fromkeys(fired)
            fired = [key for key in self._of_shard(shard, number) if key not in waiting]
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
