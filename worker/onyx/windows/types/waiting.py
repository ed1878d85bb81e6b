"""Which groups of numbered extents wait to fire, by trigger, and their records.

Watermarks that inputs assign are those of all shards, so one `Passing` a trigger is enough. Where
the segments are the watermark each shard has its own, and so has each trigger and shard. Triggers
that `notes_fired` wait for the end of the job, in extents that have none of their own too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from onyx.keystate.buckets import Bucket
from onyx.keystate.extents import Number
from onyx.keystate.groups import Keys, dump_keys, load_keys
from onyx.keystate.records import Fired, FiredGroups, Records, append
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.types.extents import OnPeer
from onyx.windows.types.passing import NEVER, Passing


class Waiting:
    """Extents of one window, for all its triggers of which it is noted what they have fired."""

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
        self._triggers = [
            each for each in on_peer.compiled.triggers if bounded and each.by_watermark
        ]
        self._ending = {
            each.name: Passing()
            for each in on_peer.compiled.triggers
            if _waits_for_end(each, bounded)
        }
        """By trigger, of those that wait for the end of the job."""
        self._passing: dict[tuple[str, int | None], Passing] = {}
        """By trigger, and by shard where the segments are the watermark."""
        if not self._of_segments:
            self._passing = {(each.name, None): Passing() for each in self._triggers}
        self._passing |= {(name, None): each for name, each in self._ending.items()}

    def of(self, trigger: str, shard: int | None) -> Passing | None:
        """The extents that wait for a watermark of all shards, or of one."""
        return self._passing.get((trigger, shard))

    def touch(self, number: int, keys: Iterable[Any]) -> None:
        """Groups of an extent have got segments."""
        if self._ending:
            keys = list(keys)
            for each in self._ending.values():
                each.touch(number, NEVER, keys)
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

    def has(self, trigger: str, number: int, key: Any) -> bool:
        """Whether a group that an extent has waits for a trigger to fire."""
        passing = self._passing.get((trigger, None))
        if passing is None:
            passing = self._passing.get((trigger, self._shards[key]))
        if passing is None or number not in passing.waiting:
            return False
        listed = passing.waiting[number]
        return listed is None or key in listed

    def have_fired(self, trigger: str, number: int, keys: Sequence[Any]) -> None:
        """A trigger that waits for the end of the job has fired for groups of an extent."""
        passing = self._ending[trigger]
        passing.settle(number, self._buckets[number], keys)
        passing.note(number, keys)

    def changed(self, number: int, keys: Collection[Any]) -> None:
        """States of groups of an extent were set, not because of segments. Their records must not
        look as if they were."""
        for (_, own), passing in self._passing.items():
            if number in passing.fired:
                mine = keys if own is None else [key for key in keys if self._shards[key] == own]
                passing.note(number, mine)

    def removed(self, number: int, keys: Collection[Any]) -> None:
        """An extent has lost groups. (Of a trigger by watermarks they are left out when it
        fires.)"""
        for passing in self._ending.values():
            passing.lose(number, keys)

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
                again = passing.waiting.get(number) or {}
                fired = [key for key in keys if key not in again]
                self._append_groups(records, name, number, fired)
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
        own = self._of_segments and record.trigger not in self._ending
        passing = self._passing.get((record.trigger, shard if own else None))
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
        for passing in self._passing.values():
            for keys in passing.also.values():
                for key in [key for key in keys if self._shards[key] in shards]:
                    del keys[key]

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


def _waits_for_end(trigger: Trigger, bounded: bool) -> bool:
    """Whether it is noted for the end of the job alone what a trigger has fired for."""
    return trigger.at_end == "changed" and (trigger.notes_fired or not bounded)


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
