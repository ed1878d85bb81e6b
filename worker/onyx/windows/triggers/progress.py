"""How far timers and the end of the job have come with a shard, while it fires page by page.

A page may be the last thing that a peer does. So what has fired is told along with what it changed,
and whoever takes over goes on behind it: nothing fires twice, and nothing is left out. (What a
watermark fires tells that itself: an extent is gone, or has fired.)

Extents of a shard fire in the order of their numbers, so that only the groups of one of them are
remembered. Where in the order of its groups a shard is was rejected instead: memory and disk have
no order in common, and sorting costs more than listing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from onyx.windows.groups import dump_keys, load_keys
from onyx.windows.records import Record, Records, tell
from onyx.windows.types.passing import Keys

Place = tuple[str, str, int]
"""Of a trigger, for a type of event, a shard."""
Unit = tuple[int | None, Any]
"""An extent by its number and a group; None: all extents of the group at once."""


@dataclass(slots=True)
class _Part:
    """Extents before this one have fired, and of it these groups."""

    extent: int | None = None
    groups: Keys | None = field(default_factory=dict)
    """None: the whole shard has fired."""
    news: list[Any] = field(default_factory=list)
    """Those of them that have fired since changes were taken."""


class Underway:
    """Of one window."""

    def __init__(self, window: str) -> None:
        self._window = window
        self._parts: dict[Place, _Part] = {}
        self._changed: dict[Place, None] = {}

    def left(self, place: Place, units: Iterable[Unit]) -> Iterator[Unit]:
        """Those that have not fired yet; `fired` may be called meanwhile."""
        part = self._parts.get(place)
        if part is None:
            yield from units
            return
        for extent, group in units:
            if part.groups is None:
                return
            if extent == part.extent:
                if group not in part.groups:
                    yield extent, group
            elif extent is None or part.extent is None or extent > part.extent:
                yield extent, group

    def fired(self, place: Place, unit: Unit) -> None:
        """A unit has fired, in order of extents."""
        part = self._parts.get(place)
        if part is None or part.groups is None or part.extent != unit[0]:
            part = self._parts[place] = _Part(unit[0])
        assert part.groups is not None
        part.groups[unit[1]] = None
        part.news.append(unit[1])
        self._changed[place] = None

    def through(self, place: Place) -> None:
        """A shard has fired as a whole, once and for all."""
        self._parts[place] = _Part(groups=None)
        self._changed[place] = None

    def forget(self, place: Place) -> None:
        """A shard has fired as a whole, and may do so again."""
        self._parts.pop(place, None)
        self._changed.pop(place, None)

    def take(self, records: Records) -> None:
        """Add what has changed since the last time."""
        for place in self._changed:
            part = self._parts[place]
            self._tell(records, place, part, part.news)
            part.news = []
        self._changed.clear()

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add all of some shards."""
        for place, part in self._parts.items():
            if place[2] in shards:
                self._tell(records, place, part, list(part.groups or ()))

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record."""
        _, _, trigger, event_type, extent, groups = record
        place = trigger, event_type, shard
        part = self._parts.get(place)
        if groups is None:
            self._parts[place] = _Part(groups=None)
            return
        if part is None or part.groups is None or part.extent != extent:
            part = self._parts[place] = _Part(extent)
        assert part.groups is not None
        part.groups.update(dict.fromkeys(load_keys(groups)))

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards."""
        for place in [each for each in self._parts if each[2] in shards]:
            self.forget(place)

    def _tell(self, records: Records, place: Place, part: _Part, groups: list[Any]) -> None:
        trigger, event_type, shard = place
        told = None if part.groups is None else dump_keys(groups)
        tell(records, shard, ["under-way", self._window, trigger, event_type, part.extent, told])
