"""Timers of a window, and how far they and the end of the job have come with a shard.

There is a timer for each trigger with a period and each shard, from its first segment on. By shard,
because shards move between peers, and a timer goes on where it was. Timers that are found due
together are due together from then on.

A page that fires may be the last thing that a peer does. The records of a chunk therefore say what
has fired together with what the firing changed (`PageProgress`), and the peer that recovers the
shard continues behind it: nothing fires twice, and nothing is left out. Firings at a watermark need
no progress: an extent that has fired is gone, or has a `Fired` record.

Extents of a shard fire in the order of their numbers, so that only the groups of one extent are
remembered. Remembering a position in the order of its groups was rejected: memory and disk have no
order in common, and sorting costs more than listing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import field

from onyx.keystate.dues import Dues
from onyx.keystate.groups import Keys, dump_keys, load_keys
from onyx.keystate.records import EventType, FiringProgress, Records, TimerDue, append
from onyx.reports.measures import StateMeasures
from onyx.windows.triggers.trigger import Trigger

Unit = tuple[int | None, Any]
"""What fires at once: an extent by its number, and a group; None: all extents of the group."""


class WindowTimers:
    """When the triggers of a window fire by the clock, in milliseconds since the epoch."""

    def __init__(self, window: str, triggers: Iterable[Trigger]) -> None:
        self._window = window
        self._triggers = {each.name: each for each in triggers if each.period_ms is not None}
        self._dues: Dues[tuple[str, int]] = Dues()
        self._changed: dict[tuple[str, int], None] = {}

    def __bool__(self) -> bool:
        return bool(self._triggers)

    def start(self, shards: Iterable[int], now_ms: int) -> None:
        """Shards have got segments: timers that are not running yet run from now on."""
        for shard in shards:
            for trigger in self._triggers.values():
                if (trigger.name, shard) not in self._dues.at:
                    self.arm(trigger, shard, now_ms)

    def due(self, now_ms: int) -> list[tuple[Trigger, list[int]]]:
        """Triggers that were due before `now_ms`, with the shards; they stay due until armed."""
        at = self._dues.at
        due = sorted((each for each in at if at[each] < now_ms), key=at.__getitem__)
        found = [
            (trigger, [shard for name, shard in due if name == trigger.name])
            for trigger in self._triggers.values()
        ]
        return [(trigger, shards) for trigger, shards in found if shards]

    def restart(self, shards: Collection[int], now_ms: int) -> None:
        """Triggers have fired for another reason: their timers are due a period later."""
        for trigger in self._triggers.values():
            for shard in shards:
                if (trigger.name, shard) in self._dues.at:
                    self.arm(trigger, shard, now_ms)

    def next_tick_ms(self) -> int | None:
        """When something is due; None when no timer runs."""
        due = self._dues.earliest()
        return None if due is None else int(due) + 1

    def measures(self, groups: int | None = None) -> StateMeasures:
        """What runs, and how many groups the window has. From any thread."""
        if not self._triggers:
            return StateMeasures(0, groups)
        due = self._dues.not_before()
        return StateMeasures(0, groups, len(self._dues.at), None if due is None else int(due) + 1)

    def arm(self, trigger: Trigger, shard: int, now_ms: int) -> None:
        """A trigger has fired for a shard, or begins: it is due a period later."""
        assert trigger.period_ms is not None
        self._dues.put((trigger.name, shard), now_ms + trigger.period_ms)
        self._changed[trigger.name, shard] = None

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._append(records, self._changed)
        self._changed = {}

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the timers of some shards."""
        self._append(records, [each for each in self._dues.at if each[1] in shards])

    def restore(self, shard: int, record: TimerDue) -> None:
        """Apply a record; that of a trigger which is not declared any more is left out."""
        if record.trigger in self._triggers:
            self._dues.put((record.trigger, shard), record.due_ms)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        for each in [each for each in self._dues.at if each[1] in shards]:
            self._dues.remove(each)
            self._changed.pop(each, None)

    def _append(self, records: Records, timers: Iterable[tuple[str, int]]) -> None:
        for name, shard in timers:
            due_ms = int(self._dues.at[name, shard])
            append(records, shard, TimerDue(self._window, name, due_ms))


class Course(NamedTuple):
    """The pages that a trigger fires for one event in one shard."""

    trigger: str
    event_type: EventType
    shard: int


class _Part(msgspec.Struct):
    """Extents before this one have fired, and of it these groups."""

    extent: int | None = None
    groups: Keys | None = field(default_factory=dict)
    """None: the whole shard has fired."""
    unrecorded: list[Any] = field(default_factory=list)
    """The units of them that have fired since changes were taken."""


class PageProgress:
    """What has fired of the shards of one window."""

    def __init__(self, window: str) -> None:
        self._window = window
        self._parts: dict[Course, _Part] = {}
        self._changed: dict[Course, None] = {}

    def left(self, course: Course, units: Iterable[Unit]) -> Iterator[Unit]:
        """The units that have not fired yet; `fired` may be called meanwhile."""
        part = self._parts.get(course)
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

    def fired(self, course: Course, extent: int | None, groups: Sequence[Any]) -> None:
        """Units of one extent have fired; units fire in the order of extents."""
        part = self._parts.get(course)
        if part is None or part.groups is None or part.extent != extent:
            part = self._parts[course] = _Part(extent)
        assert part.groups is not None
        part.groups.update(dict.fromkeys(groups))
        part.unrecorded += groups
        self._changed[course] = None

    def finish(self, course: Course) -> None:
        """A shard has fired as a whole, for the last time."""
        self._parts[course] = _Part(groups=None)
        self._changed[course] = None

    def forget(self, course: Course) -> None:
        """A shard has fired as a whole, and may do so again."""
        self._parts.pop(course, None)
        self._changed.pop(course, None)

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        for course in self._changed:
            part = self._parts[course]
            self._append(records, course, part, part.unrecorded)
            part.unrecorded = []
        self._changed.clear()

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add all of some shards."""
        for course, part in self._parts.items():
            if course.shard in shards:
                self._append(records, course, part, list(part.groups or ()))

    def restore(self, shard: int, record: FiringProgress) -> None:
        """Apply a record."""
        course = Course(record.trigger, record.event_type, shard)
        part = self._parts.get(course)
        if record.groups is None:
            self._parts[course] = _Part(groups=None)
            return
        if part is None or part.groups is None or part.extent != record.extent:
            part = self._parts[course] = _Part(record.extent)
        assert part.groups is not None
        part.groups.update(dict.fromkeys(load_keys(record.groups)))

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        for course in [each for each in self._parts if each.shard in shards]:
            self.forget(course)

    def _append(self, records: Records, course: Course, part: _Part, fired: list[Any]) -> None:
        groups = None if part.groups is None else dump_keys(fired)
        record = FiringProgress(
            self._window, course.trigger, course.event_type, part.extent, groups
        )
        append(records, course.shard, record)
