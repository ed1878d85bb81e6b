"""Session windows: extents that grow with their segments and merge when they meet.

A session reaches from its first to its last segment (0.9 let it grow by whole gaps). A segment that
is not further away than the gap joins it, and all that it joins become one, in order of their
places. With `sessionKey` the sessions of different values are apart, within a group.

What is stored is told for a group and session key as a whole: all its sessions when the aggregation
is closed, else the places and updates since the last time, which merge again in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from onyx.flow.batch import Segment
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.buckets import Form, Frozen, Holder
from onyx.windows.compile import CompiledWindow
from onyx.windows.dues import Dues
from onyx.windows.firing import Firing, Number, Runs
from onyx.windows.groups import Shards, dump_key, load_key
from onyx.windows.prepared import Taken
from onyx.windows.records import Record, Records, tell
from onyx.windows.triggers.progress import Unit
from onyx.windows.triggers.trigger import CompiledTrigger
from onyx.windows.window import WindowState

Owner = tuple[Any, Any]
"""A group and a session key."""


class Session:
    """One session; `fired` names the watermark triggers that have seen its last segment."""

    __slots__ = ("fired", "lower", "owner", "state", "upper")

    def __init__(self, owner: Owner, lower: Number, upper: Number, state: Any) -> None:
        self.owner = owner
        self.lower = lower
        self.upper = upper
        self.state = state
        self.fired: list[str] = []


class SessionWindow(WindowState):
    """A session window."""

    def __init__(
        self,
        compiled: CompiledWindow,
        grouped: bool,
        shards: Shards,
        holder: Holder,
        run_max: int,
    ) -> None:
        super().__init__(compiled, grouped, shards, holder, run_max)
        assert compiled.places is not None
        self._places = compiled.places
        self._gap = compiled.gap
        self._groups = holder.bucket(_form(self._aggregation), shards)
        """Sessions in order of their places, by group and session key."""
        self._watching = [each for each in self._triggers if each.by_watermark]
        self._passing: dict[tuple[str, int | None], Dues[Owner]] = {}
        """When the earliest session of an owner may be passed, by trigger and shard."""
        self._expiring: dict[int | None, Dues[Owner]] = {}
        self._told: dict[Owner, None] = {}
        """Owners of which all sessions are to be told."""
        self._updates: dict[Owner, list[list[Any]]] = {}
        """Places and updates of owners, where these are enough."""

    def add(
        self, segments: Sequence[Segment], taken: Taken, keys: Sequence[Any], now_ms: int
    ) -> tuple[list[tuple[int, Firing]], list[int]]:
        extracted, places = taken.extracted, taken.places
        assert places is not None, "a session window has a windowKey"
        session_keys = taken.session_keys or [None] * len(segments)
        fired: list[tuple[int, Firing]] = []
        late: list[int] = []
        for index, (key, place) in enumerate(zip(keys, places, strict=True)):
            owner = (key, session_keys[index])
            if self._is_late(owner, place):
                late.append(index)
                continue
            self._start_timers([key], now_ms)
            session = self._take_in(owner, place, extracted[index])
            if self._by_segment:
                woken = self._on_segment(key, [session], segments[index], place)
                fired += [(index, firing) for firing in woken]
        self._groups.used(keys)
        return fired, late

    # Sessions.

    def _near(self, owner: Owner, place: Number) -> list[Session]:
        """Sessions that a place joins. Mostly it is the last one, or none."""
        gap = self._gap
        held = self._sessions(owner)
        if held and held[-1].lower <= place:
            return held[-1:] if place <= held[-1].upper + gap else []
        return [each for each in held if each.lower - gap <= place <= each.upper + gap]

    def _sessions(self, owner: Owner) -> list[Session]:
        found: list[Session] = self._groups.get(owner[0], {}).get(owner[1], [])
        return found

    def _is_late(self, owner: Owner, place: Number) -> bool:
        if self.compiled.lateness is None:
            return False
        upper = max([place, *(each.upper for each in self._near(owner, place))])
        return self._is_past(upper, self._watermark_of(self._shard(owner[0])))

    def _is_past(self, upper: Number, watermark: Number) -> bool:
        assert self.compiled.lateness is not None
        return upper + self._gap + self.compiled.lateness < watermark

    def _take_in(self, owner: Owner, place: Number, extracted: Any) -> Session:
        """Put a segment into its session."""
        session = self._join(owner, place)
        try:
            update = self._aggregation.create(session.state, extracted)
            session.state = self._aggregation.apply(session.state, update)
        except TypeError as error:
            raise self._aggregation.refuse([extracted], error) from error
        if self._aggregation.closed:
            self._told[owner] = None
        elif owner not in self._told:
            self._updates.setdefault(owner, []).append([place, update])
        return session

    def _join(self, owner: Owner, place: Number) -> Session:
        """The session of a place: a new one, or one made of all that it joins."""
        near = self._near(owner, place)
        if not near:
            session = Session(owner, place, place, self._aggregation.init())
            held = self._groups[owner[0]].setdefault(owner[1], [])
            held.append(session)
            held.sort(key=_lower)
            self._await(session)
            return session
        session = near[0]
        for other in near[1:]:
            session.state = self._aggregation.merge(session.state, other.state)
            session.upper = other.upper
            self._sessions(owner).remove(other)
        session.upper = max(session.upper, place)
        if place < session.lower or session.fired:
            session.lower = min(session.lower, place)
            session.fired = []
            self._await(session)
        return session

    def _await(self, session: Session) -> None:
        """See to it that the watermark finds a session."""
        shard = self._shard(session.owner[0]) if self.compiled.watermark_of_segments else None
        for trigger in self._watching:
            if trigger.name not in session.fired:
                dues = self._passing.setdefault((trigger.name, shard), Dues())
                dues.put_earliest(
                    session.owner, trigger.due(session.lower, session.upper, self._gap)
                )
        if self.compiled.lateness is not None:
            past = session.upper + self._gap + self.compiled.lateness + 1
            self._expiring.setdefault(shard, Dues()).put_earliest(session.owner, past)

    # Watermarks.

    def _pass(self, trigger: CompiledTrigger, watermark: Number, shard: int | None) -> Runs:
        dues = self._passing.get((trigger.name, shard))
        if dues is None:
            return
        run: list[Firing] = []
        for owner in dues.take(watermark):
            for session in list(self._sessions(owner)):
                if trigger.name in session.fired:
                    continue
                if trigger.due(session.lower, session.upper, self._gap) > watermark:
                    self._await(session)
                    continue
                session.fired = [*session.fired, trigger.name]
                self._tell(owner)
                self._fire(run, trigger, "watermark", owner[0], session, None)
            if len(run) >= self._run_max:  # not between two sessions of a state that may leave
                yield run
                run = []
        yield run

    def _expire(self, watermark: Number, shard: int | None) -> None:
        dues = self._expiring.get(shard)
        if dues is None:
            return
        for owner in list(dues.take(watermark)):
            reached = self._watermark_of(self._shard(owner[0]))
            for session in list(self._sessions(owner)):
                if self._is_past(session.upper, reached):
                    self._remove(owner[0], session)
                else:
                    self._await(session)

    # Extents.

    def _extents(self, key: Any) -> list[Session]:
        return [each for held in self._groups.get(key, {}).values() for each in held]

    def _everything(self, shards: Collection[int] | None = None) -> Iterator[tuple[Any, Session]]:
        for key in self._groups.groups(shards):
            for session in self._extents(key):
                yield key, session

    def _units(self, shards: Collection[int]) -> Callable[[int], Iterator[Unit]]:
        groups = self._groups.by_shard(shards)
        return lambda shard: ((None, key) for key in groups(shard))

    def _unit(self, unit: Unit) -> Sequence[Session]:
        return self._extents(unit[1])

    def _alive(self, key: Any, extent: Session) -> bool:
        return extent in self._sessions(extent.owner)

    def _bounds(self, extent: Session) -> tuple[Number, Number]:
        return extent.lower, extent.upper

    def _get(self, key: Any, extent: Session) -> Any:
        return extent.state

    def _set(self, key: Any, extent: Session, state: Any) -> None:
        extent.state = state
        self._tell(extent.owner)

    def _remove(self, key: Any, extent: Session) -> None:
        self._tell(extent.owner)
        group, session_key = extent.owner
        self._groups[group][session_key].remove(extent)
        self._tidy(extent.owner)

    def _tidy(self, owner: Owner) -> None:
        """Keep nothing of owners without sessions."""
        group, session_key = owner
        held = self._groups.get(group, {})
        if not held.get(session_key, True):
            del held[session_key]
        if group in self._groups and not held:
            del self._groups[group]

    # Changes.

    def _tell(self, owner: Owner) -> None:
        """All sessions of an owner are to be told: updates are not enough."""
        self._told[owner] = None
        self._updates.pop(owner, None)

    def _take_extents(self, records: Records) -> None:
        for owner in self._told:
            self._tell_sessions(records, owner)
        for owner, updates in self._updates.items():
            group, session_key = map(dump_key, owner)
            record = ["session-add", self._window.id, group, session_key, updates]
            tell(records, self._shard(owner[0]), record)
        self._told, self._updates = {}, {}

    def _tell_sessions(self, records: Records, owner: Owner) -> None:
        group, session_key = map(dump_key, owner)
        sessions = _dumped(self._aggregation, self._sessions(owner))
        record = ["sessions", self._window.id, group, session_key, sessions]
        tell(records, self._shard(owner[0]), record)

    def _snapshot_extents(self, shards: Collection[int], records: Records) -> None:
        for group, held in self._groups.items():
            if self._shard(group) in shards:
                for session_key in held:
                    self._tell_sessions(records, (group, session_key))

    def _freeze_extents(self, frozen: Frozen) -> Callable[[int], Iterator[Record]]:
        window, held = self._window.id, self._groups

        def records(shard: int) -> Iterator[Record]:
            for keys, groups in frozen.pages(held, shard):
                for group, owners in zip(keys, groups, strict=True):
                    for session_key, sessions in owners:
                        yield ["sessions", window, group, session_key, sessions]

        return records

    def _restore_extents(self, shard: int, record: Record) -> None:
        kind, _, group, session_key, content = record
        owner = (load_key(group), load_key(session_key))
        if kind == "session-add":
            for place, update in content:
                session = self._join(owner, place)
                session.state = self._aggregation.apply(session.state, update)
            return
        held = _loaded(self._aggregation, owner, content)
        self._groups[owner[0]][owner[1]] = held
        for session in held:
            self._await(session)
        self._tidy(owner)

    def _drop_extents(self, shards: Collection[int]) -> None:
        for group in list(self._groups.groups(shards)):
            del self._groups[group]
        for owner in [each for each in self._told if self._shard(each[0]) in shards]:
            del self._told[owner]
        for owner in [each for each in self._updates if self._shard(each[0]) in shards]:
            del self._updates[owner]


def _lower(session: Session) -> Number:
    return session.lower


def _dumped(aggregation: Aggregation, sessions: Sequence[Session]) -> list[list[Any]]:
    dump = aggregation.dump
    return [[each.lower, each.upper, dump(each.state), list(each.fired)] for each in sessions]


def _loaded(aggregation: Aggregation, owner: Owner, sessions: Sequence[Any]) -> list[Session]:
    found = []
    for lower, upper, state, fired in sessions:
        session = Session(owner, lower, upper, aggregation.load(state))
        session.fired = list(fired)
        found.append(session)
    return found


def _form(aggregation: Aggregation) -> Form:
    """Of the sessions of a group."""

    def dump(held: dict[Any, list[Session]]) -> list[Any]:
        return [[dump_key(key), _dumped(aggregation, each)] for key, each in held.items()]

    def load(group: Any, data: list[Any]) -> dict[Any, list[Session]]:
        owners = [((group, load_key(key)), each) for key, each in data]
        return {owner[1]: _loaded(aggregation, owner, each) for owner, each in owners}

    return Form(dict, dump, load)
