"""Extents of one trigger that wait to fire, mostly for the watermark, and which groups of them.

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from onyx.keystate.dues import Dues
from onyx.keystate.extents import Number
from onyx.keystate.groups import Keys

NEVER = float("inf")
"""No watermark reaches it."""


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
