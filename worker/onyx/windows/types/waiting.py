"""Which groups of numbered extents wait for the watermark to pass, by trigger, and their records.

Watermarks that inputs assign are those of all shards, so one `Passing` a trigger is enough. Where
the segments are the watermark each shard has its own, and so has each trigger and shard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from onyx.windows.buckets import Bucket
from onyx.windows.firing import Number
from onyx.windows.groups import Keys, dump_keys, load_keys
from onyx.windows.records import Fired, FiredGroups, Records, append
from onyx.windows.types.extents import OnPeer
from onyx.windows.types.passing import Passing


class Waiting:
    """Extents of one window, for all its triggers that are `by_watermark`."""

    def __init__(
        self,
        on_peer: OnPeer,
        bounded: bool,
        bounds: Callable[[int], tuple[Number, Number]],
        buckets: Mapping[int, Bucket],
    ) -> None:
        """
        Args:
            bounded: whether extents end; if not, no watermark passes them.
            buckets: of the extents that there are, which the window changes.
        """
        self._window = on_peer.compiled.window.id
        self._of_segments = on_peer.compiled.watermark_of_segments
        self._shards = on_peer.shards
        self._bounds = bounds
        self._buckets = buckets
        triggers = on_peer.compiled.triggers if bounded else ()
        self._triggers = [each for each in triggers if each.by_watermark]
        self._passing: dict[tuple[str, int | None], Passing] = {}
        """By trigger, and by shard where the segments are the watermark."""
        if not self._of_segments:
            self._passing = {(each.name, None): Passing() for each in self._triggers}

    def of(self, trigger: str, shard: int | None) -> Passing | None:
        """The extents that wait for a watermark of all shards, or of one."""
        return self._passing.get((trigger, shard))

    def touch(self, number: int, keys: Iterable[Any]) -> None:
        """Groups of an extent have got segments."""
        if not self._triggers:
            return
        bounds = self._bounds(number)
        if not self._of_segments:
            for trigger in self._triggers:
                self._passing[trigger.name, None].touch(number, trigger.due(*bounds, 0), keys)
            return
        for key in keys:
            shard = self._shards[key]
            for trigger in self._triggers:
                passing = self._passing.get((trigger.name, shard))
                if passing is None:
                    passing = self._passing[trigger.name, shard] = Passing(listed=True)
                passing.touch(number, trigger.due(*bounds, 0), {key: None})

    def changed(self, number: int) -> None:
        """A state of an extent was set after it had fired."""
        for passing in self._passing.values():
            if number in passing.fired:
                passing.changed[number] = None

    def forget(self, number: int) -> None:
        """An extent is gone."""
        for passing in self._passing.values():
            passing.forget(number)

    def take_changes(self, records: Records) -> None:
        """Add what has fired since the last time."""
        for (name, own), passing in self._passing.items():
            for number in passing.changed:
                self._append_fired(records, name, passing, number, own, None)
            for number, keys in passing.also.items():
                self._append_groups(records, name, number, keys)
            passing.changed.clear()
            passing.also.clear()

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add what has fired in some shards, of extents that stay."""
        for (name, own), passing in self._passing.items():
            for number in passing.fired:
                self._append_fired(records, name, passing, number, own, shards)
            for number, half in passing.half.items():
                for shard in half.before:
                    if shard in shards:
                        append(records, shard, Fired(self._window, name, number, []))
                if half.shard in shards:
                    self._append_groups(records, name, number, half.keys)

    def restore(self, shard: int, record: Fired | FiredGroups, present: Iterable[Any]) -> None:
        """Apply a record.

        Args:
            present: groups of the extent that are in the shard.
        """
        passing = self._passing.get((record.trigger, shard if self._of_segments else None))
        if passing is None or record.extent not in self._buckets:
            return
        if isinstance(record, Fired):
            waiting = frozenset(load_keys(record.waiting))
            fired: Iterable[Any] = [key for key in present if key not in waiting]
        else:
            fired = load_keys(record.groups)
        passing.settle(record.extent, self._buckets[record.extent], fired)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        for each in [each for each in self._passing if each[1] in shards]:
            del self._passing[each]

    def _append_fired(
        self,
        records: Records,
        name: str,
        passing: Passing,
        number: int,
        own: int | None,
        shards: Collection[int] | None,
    ) -> None:
        """Which groups of an extent that stays have fired, in some shards or all; in the trigger's
        `own` shard only, where the segments are the watermark."""
        waiting = passing.waiting.get(number) or {}
        found: dict[int, list[Any]] = {}
        for key in self._buckets[number]:
            shard = self._shards[key]
            if own in (None, shard) and (shards is None or shard in shards):
                listed = found.setdefault(shard, [])
                if key in waiting:
                    listed.append(key)
        for shard, listed in found.items():
            append(records, shard, Fired(self._window, name, number, dump_keys(listed)))

    def _append_groups(
        self, records: Records, name: str, number: int, keys: Collection[Any]
    ) -> None:
        """Which groups have fired, of an extent that fires page by page."""
        found: dict[int, list[Any]] = {}
        for key in keys:
            found.setdefault(self._shards[key], []).append(key)
        for shard, mine in found.items():
            append(records, shard, FiredGroups(self._window, name, number, dump_keys(mine)))


class ShardIndex:
    """Groups by shard and extent while shards are being restored, so that records about a whole
    extent need no search."""

    def __init__(self, shards: Mapping[Any, int], buckets: Mapping[int, Bucket]) -> None:
        self._shards = shards
        self._buckets = buckets
        self._found: dict[int, dict[int, Keys]] | None = {}
        """None when it is out of date."""

    def invalidate(self) -> None:
        """Groups have come or gone."""
        self._found = None

    def of(self, shard: int) -> dict[int, Keys]:
        """Groups of a shard by extent."""
        if self._found is None:
            self._found = {}
            for number, bucket in self._buckets.items():
                for key in bucket:
                    held = self._found.setdefault(self._shards[key], {})
                    held.setdefault(number, {})[key] = None
        return self._found.setdefault(shard, {})
