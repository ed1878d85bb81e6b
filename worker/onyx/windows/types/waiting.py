"""Which groups of numbered extents wait to fire, by trigger, and their records.

Watermarks that inputs assign are those of all shards, so one `Passing` a trigger is enough. Where
the segments are the watermark each shard has its own, and so has each trigger and shard. Triggers
that `notes_fired` wait for the end of the job, in extents that have none of their own too.

An extent that has not been passed waits as a whole, so that a batch costs one look-up however many
groups it has. One that has fired and is kept (`accumulating`) waits only for the groups that have
got more segments since, which are listed.

An extent that is too large to fire at once fires in parts, shard by shard, and remembers which
groups each part had. So nothing that is kept or recorded lists more groups than a part or a shard
has.

A trigger that no watermark makes fire, but the end of the job if something has changed, has extents
that wait for the end (`NEVER` due). Its groups fire one by one, or some at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from onyx.keystate.buckets import Bucket
from onyx.keystate.dues import Dues
from onyx.keystate.extents import Number
from onyx.keystate.groups import Keys, dump_keys, load_keys
from onyx.keystate.records import Fired, FiredGroups, Records, append
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.types.extents import OnPeer

NEVER = float("inf")
"""No watermark reaches it."""


class WaitingExtents:
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


class Half:
    """The half of an extent that fires shard by shard: where that is."""

    def __init__(self) -> None:
        self.before: list[int] = []
        """Shards that have fired."""
        self.shard: int | None = None
        self.keys: list[Any] = []
        """Groups of this shard that have."""

    def fired(self, shard: int, keys: Sequence[Any]) -> None:
        """Some groups more have fired, of this shard or of the next one."""
        if shard != self.shard:
            if self.shard is not None:
                self.before.append(self.shard)
            self.shard, self.keys = shard, []
        self.keys += keys


class Passing:
    """`listed`: groups are always listed, because the extents are not this trigger's alone."""

    def __init__(self, listed: bool = False) -> None:
        self._listed = listed
        self._dues: Dues[int] = Dues()
        self.waiting: dict[int, Keys | None] = {}
        """Groups that wait, by extent; None: all that the extent has."""
        self.fired: dict[int, None] = {}
        """Extents that have fired and are kept."""
        self.changed: dict[int, None] = {}
        """The groups of them that have fired since changes were taken."""
        self.also: dict[int, Keys] = {}
        """Groups of which it is to be recorded that they have fired, unless they wait again."""
        self.half: dict[int, Half] = {}
        """Extents of which some shards have fired."""

    def touch(self, extent: int, due: Number, keys: Iterable[Any]) -> None:
        """Groups of an extent have got segments."""
        if extent in self.waiting:
            held = self.waiting[extent]
            if held is not None:
                held.update(dict.fromkeys(keys))
            return
        listed = self._listed or extent in self.fired
        self.waiting[extent] = dict.fromkeys(keys) if listed else None
        self._dues.put(extent, due)

    def passed(self, watermark: Number) -> Iterator[int]:
        """Extents that the watermark has passed; each waits until it is taken."""
        return self._dues.take(watermark)

    def take(self, extent: int) -> Keys | None:
        """An extent waits no more; the groups that have waited, None: all that it has."""
        return self.waiting.pop(extent)

    def keep(self, extent: int) -> None:
        """An extent has fired and stays."""
        self.fired[extent] = None
        self.changed[extent] = None

    def part(self, extent: int, shard: int | None, keys: Sequence[Any]) -> None:
        """Some groups of an extent that stays have fired: of a shard, or of those listed."""
        self.note(extent, keys)
        listed = self.waiting.get(extent)
        if shard is not None:
            self.half.setdefault(extent, Half()).fired(shard, keys)
        elif listed is not None:
            for key in keys:
                del listed[key]

    def note(self, extent: int, keys: Iterable[Any]) -> None:
        """Groups of an extent have fired, which is to be recorded."""
        self.also.setdefault(extent, {}).update(dict.fromkeys(keys))

    def lose(self, extent: int, keys: Iterable[Any]) -> None:
        """An extent has lost groups."""
        listed, noted = self.waiting.get(extent) or {}, self.also.get(extent, {})
        for key in keys:
            listed.pop(key, None)
            noted.pop(key, None)

    def through(self, extent: int) -> None:
        """The last part of an extent has fired, and it stays."""
        self.half.pop(extent, None)
        self.waiting.pop(extent, None)
        self.fired[extent] = None

    def forget(self, extent: int) -> None:
        """An extent is gone."""
        self._dues.remove(extent)
        self.waiting.pop(extent, None)
        self.fired.pop(extent, None)
        self.changed.pop(extent, None)
        self.also.pop(extent, None)
        self.half.pop(extent, None)

    def settle(self, extent: int, present: Mapping[Any, Any], fired: Iterable[Any]) -> None:
        """Settles as restored: of the groups `present` in an extent, these have fired."""
        self.fired[extent] = None
        held = self.waiting.get(extent, {})
        left = dict.fromkeys(present) if held is None else held
        for key in fired:
            left.pop(key, None)
        self.waiting[extent] = left
        if not left:
            del self.waiting[extent]
            self._dues.remove(extent)
