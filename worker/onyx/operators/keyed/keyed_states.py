"""The state by key of one task on one peer, and what happens to it when no segment comes: timers
that are due, and groups that nobody has changed for long.

What a function makes begins new trees, so nobody asks for it again. In a loop it goes on in the
tree of the segment that it was made of: laps, ends and epochs are those of any function then. A
segment that comes again must not be called for again, as its group has another state now, but what
was made of it may be lost. So it is state like any other (`MadeBefore`), by group, until no attempt
of the segment follows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from onyx.base.seams import Clock as ClockOfProcess
from onyx.codec.segments import decode, encode
from onyx.errors import UserError, UserFunctionError
from onyx.flow.batch import Segment
from onyx.flow.columns.record_batch import Columns
from onyx.flow.leaves import Leaves
from onyx.keystate.buckets import Holder
from onyx.keystate.coded import Groups
from onyx.keystate.extents import Extent, Number
from onyx.keystate.groups import Shards
from onyx.keystate.pages import Emission, Page, Pages
from onyx.keystate.records import MADE, Record, Records
from onyx.keystate.selection import EVERYTHING, Selection
from onyx.ledger.applied import above
from onyx.operators.keyed.definition import KeyedFunction
from onyx.operators.keyed.function_calls import DeclaredStates
from onyx.operators.keyed.states import ABSENT, States
from onyx.operators.keyed.store import KeyedStore, extents_of
from onyx.operators.keyed.timers import Clock, DueTimer, Expiry, KeyTimers
from onyx.program.failure import blamed
from onyx.program.operator import Operator
from onyx.reports.measures import StateMeasures

logger = logging.getLogger("onyx.task")

TIMERS_AT_ONCE = 64
"""What so many timers have made is sent together."""


Lineage = tuple[int, int]
"""Root and id of a segment, as of its first attempt."""


class Timer(NamedTuple):
    """A timer that is due, as `onTimer` gets it."""

    name: str
    due_ms: int
    """When it was due, in milliseconds since 1970."""
    clock: Clock
    """The clock by which it was set."""


class KeyedStates(Operator):
    """The states of a function: all of an operator but what it does with a batch."""

    def __init__(
        self,
        its: KeyedFunction,
        params: Sequence[Any],
        shards: Shards,
        holder: Holder,
        clock: ClockOfProcess,
    ) -> None:
        """
        Args:
            params: leading arguments of its functions.
            shards: gives the shard of a group.
            holder: has the states.
            clock: of the process.
        """
        self.its = its
        self._shards = shards
        self._clock = clock
        self._store = KeyedStore(shards, holder)
        self._timers = KeyTimers(self._store) if its.on_timer is not None else None
        self._expiry = None if its.ttl_ms is None else Expiry(self._store, its.ttl_ms)
        self.made_before = MadeBefore(self._store) if its.needs.in_trees else None
        self._held = DeclaredStates(its, self._store, self._timers, params, clock.wall_ms)
        self._state = self._held.state
        self._end_is_known = False

    # Calls of the user's.

    def call(self, fn: Callable[..., Any], group: Any, argument: Any, now_ms: int) -> list[Segment]:
        """Call a function for a group, and keep what it changes. Raises as that of
        `DeclaredStates`."""
        made, changed = self._held.call(fn, group, argument)
        if changed and self._expiry is not None:
            self._expiry.touch(group, now_ms)
        return made

    def call_columns(
        self, fn: Callable[..., Any], groups: Groups, columns: Columns, now_ms: int
    ) -> Leaves:
        """Call a function over columns, and keep what it sets (`DeclaredStates.call_columns`)."""
        leaves, changed = self._held.call_columns(fn, groups, columns)
        if changed and self._expiry is not None:
            for group in groups.keys:
                self._expiry.touch(group, now_ms)
        return leaves

    def trim(self) -> None:
        """Put on disk what was used least. When a batch is through."""
        self._store.trim()

    def forget(self, frontiers: Mapping[int, int]) -> None:
        """What was made of segments that do not come again."""
        if self.made_before is not None:
            self.made_before.forget(frontiers)

    # When no segment comes.

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` is due next."""
        if self._is_late():
            return 0
        found = [
            None if self._timers is None else self._timers.earliest_ms("processing-time"),
            None if self._expiry is None else self._expiry.earliest_ms(),
        ]
        return min((each for each in found if each is not None), default=None)

    def tick(self, now_ms: int) -> Pages:
        """Timers that are due fire, and groups that nobody has changed for long lose their
        states."""
        if self._timers is not None:
            if self._is_late():
                yield from self._due(self._timers, "event-time", self._state.event_time_ms)
            yield from self._due(self._timers, "processing-time", now_ms)
        if self._expiry is not None:
            for group in self._expiry.take(now_ms):
                self._held.forget(group)
                self.trim()
                yield [Emission(self._shards[group], [])]

    def advance(self, watermark: Number) -> Pages:
        """Timers by event time fire that the watermark has passed."""
        self._state.watermark = int(watermark)
        if self._timers is None:
            return iter(())
        return self._due(self._timers, "event-time", self._state.watermark)

    @property
    def end_is_known(self) -> bool:
        """Whether timers know where event time ends, if there are any. The last watermark says so
        as well, but may come after the end or not at all."""
        return self._timers is None or self._end_is_known

    def ends_at(self, newest_ms: int | None) -> None:
        """Nothing comes any more, and the greatest event time was this."""
        self._end_is_known = True
        known_ms = self._state.watermark
        if newest_ms is not None and (known_ms is None or newest_ms > known_ms):
            self._state.watermark = newest_ms

    def complete(self, shards: Collection[int], now_ms: int) -> Pages:
        """Event time comes to its end: timers fire until none is due, also those that are set
        meanwhile. Then all others of these shards fire, and none is set any more."""
        if self._timers is None:
            return
        yield from self._due(self._timers, "event-time", self._state.event_time_ms)
        self._state.ending = True
        yield from self._fired(self._timers.take_all(shards), now_ms)
        self._state.ending = False
        if self._state.refused:
            logger.warning(
                "task %s: onTimer has set %d timers beyond the end of event time, when the job "
                "had ended: they are not called",
                self.its.task,
                self._state.refused,
            )
            self._state.refused = 0

    def _is_late(self) -> bool:
        """Whether a timer was set for an event time that is past."""
        if self._timers is None or self._state.event_time_ms is None:
            return False
        due_ms = self._timers.earliest_ms("event-time")
        return due_ms is not None and due_ms <= self._state.event_time_ms

    def _due(self, timers: KeyTimers, clock: Clock, at_ms: int | None) -> Pages:
        if at_ms is None:
            return iter(())
        return self._fired(timers.take_due(clock, at_ms), self._clock.wall_ms())

    def _fired(self, due: Iterator[DueTimer], now_ms: int) -> Pages:
        page: Page = []
        for timer in due:
            page.append(Emission(self._shards[timer.key], self._call_timer(timer, now_ms)))
            if len(page) == TIMERS_AT_ONCE:
                yield page
                page = []
                self.trim()
        if page:
            yield page
        self.trim()

    def _call_timer(self, due: DueTimer, now_ms: int) -> list[Segment]:
        assert self.its.on_timer is not None, "timers are there for it"
        timer = Timer(due.name, due.due_ms, due.clock)
        try:
            return self.call(self.its.on_timer, due.key, timer, now_ms)
        except BaseException as error:
            where = f"onTimer {self.its.on_timer_name}"
            raise UserFunctionError(blamed(where, error)) from error

    def measures(self) -> StateMeasures:
        """Groups, by the state that most of them have, and their timers."""
        groups = max((len(self._store.states[name]) for name in self.its.states), default=0)
        return StateMeasures(0, groups) if self._timers is None else self._timers.measures(groups)

    # What is recorded and restored.

    def take_changes(self) -> Records:
        """What has changed since the last call, by shard."""
        return self._store.take_changes()

    def freeze(self, shards: Collection[int]) -> Callable[[int], Iterable[Record]]:
        """What gives the whole state of each of these shards as it is now."""
        return self._store.freeze(shards)

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records to a shard. Raises UserError: the task has no such state."""
        self._store.restore(shard, records)

    def restored(self) -> None:
        """All shards are restored."""
        self._store.restored()

    def resume(self, watermark: Number) -> None:
        """Event time was here when the state was recorded."""
        self._state.watermark = int(watermark)

    def query(
        self, name: str, asked: Selection = EVERYTHING, extents_max: int | None = None
    ) -> list[Extent]:
        """The states of a name, which is that of the task and that of the state with a dot between.
        Raises UserError: there is no such state."""
        return extents_of(self._found(name), asked, extents_max)

    def look_up(self, name: str, keys: Sequence[Any]) -> list[list[Any]]:
        """For each group (`groups.hashable_key`) a list with its state, which is empty if it has
        none. Raises as `query`."""
        states = self._found(name).get_all(keys, ABSENT)
        self.trim()
        return [[] if state is ABSENT else [state] for state in states]

    def _found(self, name: str) -> States:
        states = self._store.states.get(name.removeprefix(f"{self.its.task}."))
        if states is None or states.name not in self.its.states:
            raise UserError(
                f"task {self.its.task} has no state {name!r}, but {', '.join(self.its.states)}"
            )
        return states


class MadeBefore:
    """By group and segment, what was made of it, as bytes: functions behind may change segments."""

    def __init__(self, store: KeyedStore) -> None:
        self._made = store.maps(MADE)
        self._of_root: dict[int, list[tuple[Any, str]]] = {}
        """Groups and items, by the root of the segment."""
        store.upon_restored(self._restored)

    def keep(self, group: Any, of: Lineage, segments: Sequence[Segment]) -> None:
        """So much was made of a segment."""
        if segments:
            item = _item(of)
            assert item not in self._made.get(group), "of an applied segment nothing is made again"
            self._made.set(group, item, encode(list(segments)))
            self._of_root.setdefault(of[0], []).append((group, item))

    def of(self, group: Any, of: Lineage) -> list[Segment]:
        """What was made of a segment that has been applied."""
        data = self._made.get(group).get(_item(of))
        return [] if data is None else decode(data)

    def forget(self, frontiers: Mapping[int, int]) -> None:
        """Nothing below these positions of their partitions comes again."""
        roots = np.fromiter(self._of_root, np.uint64, len(self._of_root))
        for root in roots[~above(frontiers, roots)].tolist() if len(roots) else ():
            for group, item in self._of_root.pop(root):
                self._made.discard(group, item)

    def _restored(self) -> None:
        for group, made in self._made.items():
            for item in made:
                root, _, _ = item.partition(".")
                self._of_root.setdefault(int(root), []).append((group, item))


def _item(of: Lineage) -> str:
    return f"{of[0]}.{of[1]}"
