"""Window type `session`: extents that grow with their segments and merge when they meet.

A session reaches from its first to its last segment (0.9 let it grow by whole gaps). A segment that
is not further away than the gap joins it, and all that it joins become one, in order of their
coordinates. With `sessionKey` the sessions of different values are apart, within a group.

Records are of a group and session key as a whole: all its sessions, as columns, when the
aggregation is closed, else the coordinates and updates since the last chunk, which merge again in
the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from onyx.keystate.buckets import BucketForm, Frozen
from onyx.keystate.coded import Groups, Keyed, chosen, rows
from onyx.keystate.dues import Dues
from onyx.keystate.extents import Number
from onyx.keystate.groups import dump_key, load_key, load_keys
from onyx.keystate.records import (
    AddToSessions,
    Record,
    Records,
    SetSessionArrays,
    SetSessions,
    append,
)
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.arrays.session_rows import as_objects
from onyx.windows.firing import AnyFiring, FiringPages
from onyx.windows.prepared import WindowInput
from onyx.windows.triggers.timers import Unit
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.types.extents import GONE, Extents, Fire, OnPeer, Wanted
from onyx.windows.types.session_runs import Owner, Runs
from onyx.windows.units import standard

_lower = attrgetter("lower")


class Session:
    """One session; `fired` names the triggers that have fired since its last segment, of those of
    which that is noted."""

    __slots__ = ("fired", "lower", "owner", "state", "upper")

    def __init__(self, owner: Owner, lower: Number, upper: Number, state: Any) -> None:
        self.owner = owner
        self.lower = lower
        self.upper = upper
        self.state = state
        self.fired: list[str] = []


class SessionColumns(NamedTuple):
    """Sessions as plain data: the columns of `SetSessions`."""

    lowers: list[Number]
    uppers: list[Number]
    states: list[Any]
    fired: list[list[str]]


def dumped(aggregation: Aggregation, sessions: Sequence[Session]) -> SessionColumns:
    return SessionColumns(
        [each.lower for each in sessions],
        [each.upper for each in sessions],
        [aggregation.dump(each.state) for each in sessions],
        [each.fired for each in sessions],
    )


def recorded(window: str, owners: Sequence[Sequence[Any]]) -> SetSessions:
    """The record of some owners: of each the group, the session key, and `SessionColumns`."""
    return SetSessions(window, *map(list, zip(*owners, strict=True)))


def loaded(
    aggregation: Aggregation,
    owner: Owner,
    lowers: Sequence[Number],
    uppers: Sequence[Number],
    states: Sequence[Any],
    fired: Sequence[Sequence[str]],
) -> list[Session]:
    found = []
    for lower, upper, state, names in zip(lowers, uppers, states, fired, strict=True):
        session = Session(owner, lower, upper, aggregation.load(state))
        session.fired = list(names)
        found.append(session)
    return found


def form(aggregation: Aggregation) -> BucketForm:
    """The form of the sessions of a group: for each session key its sessions."""

    def dump(held: dict[Any, list[Session]]) -> list[Any]:
        return [[dump_key(key), *dumped(aggregation, each)] for key, each in held.items()]

    def load(group: Any, data: list[Any]) -> dict[Any, list[Session]]:
        owners = [((group, load_key(key)), columns) for key, *columns in data]
        return {owner[1]: loaded(aggregation, owner, *columns) for owner, columns in owners}

    return BucketForm(dict, dump, load)


class SessionExtents(Extents[Session]):
    """Sessions in order of their coordinates, by group and session key."""

    merges = True

    def __init__(self, on_peer: OnPeer) -> None:
        super().__init__(on_peer)
        compiled = on_peer.compiled
        assert compiled.window.timeout_gap is not None, "checked when the job is parsed"
        self._gap = standard(compiled.window.timeout_gap)
        self._groups = on_peer.holder.bucket(form(self._aggregation), self._shards)
        self._of_segments = compiled.watermark_of_segments
        self._triggers = [each for each in compiled.triggers if each.by_watermark]
        self._passing: defaultdict[tuple[str, int | None], Dues[Owner]] = defaultdict(Dues)
        """When the earliest session of an owner may be passed, by trigger and shard."""
        self._expiring: defaultdict[int | None, Dues[Owner]] = defaultdict(Dues)
        self._changed: dict[Owner, None] = {}
        """Owners of which all sessions are recorded."""
        self._updates: dict[Owner, tuple[list[Number], list[Any]]] = {}
        """Coordinates and updates of owners of which these are enough."""

    # Segments come.

    def add(self, taken: WindowInput, keys: Keyed) -> list[int]:
        """Segment by segment, as each may be near the one before; of columns run by run."""
        if isinstance(keys, Groups) and self._aggregation.closed:
            runs = Runs.of(taken.coordinates, keys, taken.session_keys, self._gap)
            if runs is not None:
                return self._add_runs(runs, taken)
        its_rows, its_keys = taken.by_row(), rows(keys)
        late = [i for i, key in enumerate(its_keys) if self._take_in(its_rows, i, key) is None]
        self._groups.used(its_keys)
        return late

    def _add_runs(self, runs: Runs, taken: WindowInput) -> list[int]:
        """What `_take_in` does with each segment, with a step for each run."""
        owners, owner_of = runs.owners(), runs.owner_of.tolist()
        alone = self._owners_alone(runs, owners)
        its_rows = taken.by_row() if alone else taken
        sessions: dict[int, Session] = {}
        late: list[int] = []
        for row, run, upper in runs.events(alone):
            number = owner_of[run]
            owner = owners[number]
            if number in alone:
                if self._take_in(its_rows, row, owner[0]) is None:
                    late.append(row)
                continue
            if run in sessions:
                sessions[run].upper = max(sessions[run].upper, upper)
            sessions[run] = self._join(owner, int(runs.coordinates[row]))
            self._changed[owner] = None
        self._fold_runs(runs, sessions, taken)
        self._groups.used(dict.fromkeys(group for group, _ in owners))
        return late

    def _owners_alone(self, runs: Runs, owners: Sequence[Owner]) -> set[int]:
        """Owners whose segments go one by one: they may be late, or join several sessions, or one
        that another run joins as well."""
        alone = set(runs.merging.tolist())
        joined: set[int] = set()
        firsts = runs.coordinates[runs.firsts].tolist()
        its = zip(
            runs.owner_of.tolist(), runs.lows.tolist(), runs.highs.tolist(), firsts, strict=True
        )
        for number, low, high, first in its:
            owner = owners[number]
            near = [
                each
                for each in self._sessions(owner)
                if each.lower - self._gap <= high and low <= each.upper + self._gap
            ]
            if near != self._near(owner, first) or len(near) > 1:
                alone.add(number)
            if not joined.isdisjoint(map(id, near)):
                alone.add(number)
            joined.update(map(id, near))
            watermark = self._watermarks.of(self._shards[owner[0]])
            if self._lateness is not None and self._is_past(low, watermark):
                alone.add(number)
        return alone

    def _fold_runs(self, runs: Runs, sessions: dict[int, Session], taken: WindowInput) -> None:
        """Get the values of runs into their sessions."""
        where = runs.rows_of(sessions)
        states = {run: session.state for run, session in sessions.items()}
        numbers = chosen(Groups(runs.run_of, list(range(len(runs.owner_of)))), where)
        values = chosen(taken.extracted, where)
        try:
            self._aggregation.fold_groups(states, numbers, values)
        except TypeError as error:
            raise self._aggregation.refuse(rows(values), error) from error
        highs = runs.highs.tolist()
        for run, session in sessions.items():
            session.state = states[run]
            session.upper = max(session.upper, highs[run])

    def add_one(self, taken: WindowInput, index: int, key: Any) -> Sequence[Session]:
        """Fold one segment of a batch into the states of its group; gives the extents that have it,
        none if it is late."""
        session = self._take_in(taken, index, key)
        self._groups.used([key])
        return [] if session is None else [session]

    def _take_in(self, taken: WindowInput, index: int, key: Any) -> Session | None:
        """Put a segment into its session; None if it is late."""
        assert taken.coordinates is not None, "a session window has a windowKey"
        coordinate, extracted = taken.coordinates[index], taken.extracted[index]
        owner = (key, None if taken.session_keys is None else taken.session_keys[index])
        if self._lateness is not None and self._is_late(owner, coordinate):
            return None
        session = self._join(owner, coordinate)
        try:
            session.state, update = self._aggregation.step(session.state, extracted)
        except TypeError as error:
            raise self._aggregation.refuse([extracted], error) from error
        if self._aggregation.closed:
            self._changed[owner] = None
        elif owner not in self._changed:
            coordinates, updates = self._updates.setdefault(owner, ([], []))
            coordinates.append(coordinate)
            updates.append(update)
        return session

    def _sessions(self, owner: Owner) -> list[Session]:
        found: list[Session] = self._groups.get(owner[0], {}).get(owner[1], [])
        return found

    def _near(self, owner: Owner, coordinate: Number) -> list[Session]:
        """Sessions that a coordinate joins. Mostly it is the last one, or none."""
        gap = self._gap
        held = self._sessions(owner)
        if held and held[-1].lower <= coordinate:
            return held[-1:] if coordinate <= held[-1].upper + gap else []
        return [each for each in held if each.lower - gap <= coordinate <= each.upper + gap]

    def _is_late(self, owner: Owner, coordinate: Number) -> bool:
        upper = max([coordinate, *(each.upper for each in self._near(owner, coordinate))])
        return self._is_past(upper, self._watermarks.of(self._shards[owner[0]]))

    def _is_past(self, upper: Number, watermark: Number) -> bool:
        assert self._lateness is not None
        return upper + self._gap + self._lateness < watermark

    def _join(self, owner: Owner, coordinate: Number) -> Session:
        """The session of a coordinate: a new one, or one made of all that it joins."""
        near = self._near(owner, coordinate)
        if not near:
            session = Session(owner, coordinate, coordinate, self._aggregation.init())
            held = self._groups[owner[0]].setdefault(owner[1], [])
            held.append(session)
            held.sort(key=_lower)
            self._await(session)
            return session
        session = near[0]
        for other in near[1:]:
            session.state = self._aggregation.merge(session.state, other.state)
            session.upper = other.upper
            other.state = GONE
            self._sessions(owner).remove(other)
        session.upper = max(session.upper, coordinate)
        if coordinate < session.lower or session.fired:
            session.lower = min(session.lower, coordinate)
            session.fired = []
            self._await(session)
        return session

    def _await(self, session: Session) -> None:
        """Make the watermark find a session."""
        shard = self._shards[session.owner[0]] if self._of_segments else None
        for trigger in self._triggers:
            if trigger.name not in session.fired:
                dues = self._passing[trigger.name, shard]
                due = trigger.due(session.lower, session.upper, self._gap)
                dues.put_earliest(session.owner, due)
        if self._lateness is not None:
            past = session.upper + self._gap + self._lateness + 1
            self._expiring[shard].put_earliest(session.owner, past)

    # Extents are looked at and changed.

    def find(self, key: Any, number: int | None = None) -> list[Session]:
        """All extents of a group, or the one of a number if the group has it. Sessions have no
        numbers."""
        return [each for held in self._groups.get(key, {}).values() for each in held]

    def everything(self, wanted: Wanted) -> Iterator[tuple[Any, Session]]:
        """Each group with each of its extents that is wanted, in any order."""
        for key in self._groups.groups():
            for session in self.find(key):
                if wanted(session.lower, session.upper):
                    yield key, session

    def size(self) -> int:
        """How many groups have sessions."""
        return len(self._groups)

    def units(self, shards: Collection[int]) -> Callable[[int], Iterator[Unit]]:
        """Each group, with all its sessions."""
        groups = self._groups.by_shard(shards)
        return lambda shard: ((None, key) for key in groups(shard))

    def bounds(self, extent: Session) -> tuple[Number, Number]:
        """First and last coordinate of an extent."""
        return extent.lower, extent.upper

    def of_session(self, extent: Session) -> tuple[Any, ...]:
        """The session key of a session, as groups are looked up; nothing of other extents."""
        return (extent.owner[1],)

    def get(self, key: Any, extent: Session) -> Any:
        """The state of a group, or GONE."""
        return extent.state

    def put(self, key: Any, extent: Session, state: Any) -> None:
        """Give a group that an extent has another state; GONE removes the group."""
        extent.state = state
        self._record_all(extent.owner)
        if state is GONE:
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

    # Triggers that fire at the end for what has changed.

    def unfired(self, trigger: str, key: Any, extent: Session) -> bool:
        """Whether a group that an extent has got segments since a trigger fired for it last."""
        return trigger not in extent.fired

    def have_fired(self, trigger: str, extent: Session, keys: Sequence[Any]) -> None:
        """A trigger of which that is noted fires for a session."""
        if trigger not in extent.fired:
            extent.fired = [*extent.fired, trigger]
            self._record_all(extent.owner)

    # Watermarks pass.

    def pass_watermark(
        self, trigger: Trigger, watermark: Number, shard: int | None, fire: Fire[Session]
    ) -> FiringPages:
        """Have extents fire that a watermark has passed, and that got segments since they fired
        last: those of all shards, or of one. All sessions of an owner are in the same page: the
        state that they are in may leave memory between two pages."""
        dues = self._passing.get((trigger.name, shard))
        if dues is None:
            return
        page: list[AnyFiring] = []
        for owner in dues.take(watermark):
            for session in list(self._sessions(owner)):
                if trigger.name in session.fired:
                    continue
                if trigger.due(session.lower, session.upper, self._gap) > watermark:
                    self._await(session)
                    continue
                session.fired = [*session.fired, trigger.name]
                self._record_all(owner)
                page += fire(session, [(owner[0], session.state)])
                if trigger.forgets:
                    self.put(owner[0], session, GONE)
            if len(page) >= self._page_max:
                yield page
                page = []
        yield page

    def expire(self, watermark: Number, shard: int | None) -> None:
        """Forget extents that a watermark has passed by more than the lateness allowed. Not those
        that only the watermark of their shard has: whoever had the shard may have died before they
        fired, and here the watermark has yet to come to them."""
        dues = self._expiring.get(shard)
        if dues is None:
            return
        for owner in list(dues.take(watermark)):
            for session in list(self._sessions(owner)):
                if self._is_past(session.upper, watermark):
                    self.put(owner[0], session, GONE)
                else:
                    self._await(session)

    # State is recorded and restored.

    def _record_all(self, owner: Owner) -> None:
        """All sessions of an owner are recorded: updates are not enough."""
        self._changed[owner] = None
        self._updates.pop(owner, None)

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        changed: dict[int, list[Any]] = {}
        for owner in self._changed:
            columns = dumped(self._aggregation, self._sessions(owner))
            changed.setdefault(self._shards[owner[0]], []).append((*map(dump_key, owner), *columns))
        for shard, owners in changed.items():
            append(records, shard, recorded(self._window, owners))
        for owner, (coordinates, updates) in self._updates.items():
            group, session_key = map(dump_key, owner)
            added = AddToSessions(self._window, group, session_key, coordinates, updates)
            append(records, self._shards[owner[0]], added)
        self._changed, self._updates = {}, {}

    def states(self, frozen: Frozen) -> Callable[[int], Iterator[Record]]:
        """What gives the states of a shard, as they are frozen."""
        window, held = self._window, self._groups

        def records(shard: int) -> Iterator[Record]:
            for keys, groups in frozen.pages(held, shard):
                owners = [
                    (group, *columns)
                    for group, of_group in zip(keys, groups, strict=True)
                    for columns in of_group
                ]
                if owners:
                    yield recorded(window, owners)

        return records

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record of `take_changes`, `states` or `snapshot`."""
        match record:
            case AddToSessions(
                group=group, session_key=key, coordinates=coordinates, updates=updates
            ):
                owner = (load_key(group), load_key(key))
                for coordinate, update in zip(coordinates, updates, strict=True):
                    session = self._join(owner, coordinate)
                    session.state = self._aggregation.apply(session.state, update)
            case SetSessions():
                self._set(record)
            case SetSessionArrays():
                self._set(as_objects(record, self._aggregation))

    def _set(self, record: SetSessions) -> None:
        owners = zip(load_keys(record.groups), load_keys(record.session_keys), strict=True)
        columns = zip(record.lowers, record.uppers, record.states, record.fired, strict=True)
        for owner, its in zip(owners, columns, strict=True):
            held = loaded(self._aggregation, owner, *its)
            if not held:
                self._groups.get(owner[0], {}).pop(owner[1], None)
                self._tidy(owner)
                continue
            self._groups[owner[0]][owner[1]] = held
            for session in held:
                self._await(session)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now, with what has changed in them."""
        for group in list(self._groups.groups(shards)):
            del self._groups[group]
        for owner in [each for each in self._changed if self._shards[each[0]] in shards]:
            del self._changed[owner]
        for owner in [each for each in self._updates if self._shards[each[0]] in shards]:
            del self._updates[owner]
