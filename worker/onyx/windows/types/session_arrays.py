"""Sessions of tasks over columns: in arrays, as long as a batch does with them what arrays can do.

The runs of a batch and the sessions that they are near to are found for all groups at once. A run
that is near to one session joins it, one that is near to none begins one; then the values of all
runs are folded at once. So it takes no step of Python for a group or a session, and neither does a
watermark that passes sessions.

Other groups have their sessions as objects (`session`), until these are gone: those of whom
sessions merge within a batch, or segments may be late; those whose states or coordinates arrays do
not hold; those that somebody asks for one by one. So results are those of objects to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from math import ceil, floor, isfinite
from typing import Any

import numpy as np

from onyx.flow.batch import Indices, Mask
from onyx.keystate.buckets import Frozen
from onyx.keystate.coded import Groups, Keyed, chosen
from onyx.keystate.extents import Number
from onyx.keystate.groups import Keys, load_keys
from onyx.keystate.records import Record, Records, SetSessionArrays, SetSessions
from onyx.windows.aggregations.array_forms import States
from onyx.windows.arrays.session_rows import (
    SessionBounds,
    SessionPage,
    SessionPairs,
    SessionRows,
    sessions_of,
)
from onyx.windows.firing import FiringPages
from onyx.windows.prepared import WindowInput
from onyx.windows.triggers.timers import Unit
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.types.extents import Fire, OnPeer, Wanted
from onyx.windows.types.session import Session, SessionExtents
from onyx.windows.types.session_runs import NONE, Meetings, Runs, meetings

COORDINATE_MAX = 2**52
"""Beyond it a float, which a trigger may make of coordinates, does not hold all of them."""
_MASK_BITS = 64


class SessionsInArrays(SessionExtents):
    """Sessions of which most are in arrays."""

    @classmethod
    def made(cls, on_peer: OnPeer) -> SessionExtents:
        """In arrays, where the window folds whole batches of columns and fires with watermarks."""
        compiled = on_peer.compiled
        triggers = compiled.triggers
        possible = (
            compiled.columns
            and on_peer.whole
            and on_peer.holder.in_memory
            and compiled.window.session_key is None
            and compiled.aggregation.array_form() is not None
            and len(triggers) <= _MASK_BITS
            and all(each.by_watermark and not each.refinement.calls for each in triggers)
        )
        return cls(on_peer) if possible else SessionExtents(on_peer)

    def __init__(self, on_peer: OnPeer) -> None:
        super().__init__(on_peer)
        form = self._aggregation.array_form()
        assert form is not None, "seen before"
        self._form = form
        self._rows = SessionRows(form, self._shards, [each.name for each in self._triggers])
        self._unnoted: Keys = {}
        """Groups that have objects, or had, of which the rows do not know it."""

    # Segments come.

    def add(self, taken: WindowInput, keys: Keyed) -> list[int]:
        """All groups at once, but those that have objects, or need them now."""
        self.settle()
        runs = None
        if isinstance(keys, Groups):
            runs = Runs.of(taken.coordinates, keys, None, self._gap)
        groups = keys if isinstance(keys, Groups) else Groups.of_rows(keys)
        owners = self._rows.owners(groups)
        if runs is None or owners is None:
            self._make_objects(self._found(groups))
            self._unnoted.update(dict.fromkeys(groups.keys))
            return super().add(taken, keys)
        alone = self._add_in_arrays(runs, owners, taken)
        self._make_objects(owners[alone])
        if not alone.any():
            return []
        where = np.flatnonzero(alone[groups.codes])
        late = super().add(taken.chosen(where), chosen(keys, where))
        return where[late].tolist() if late else []

    def _add_in_arrays(self, runs: Runs, owners: Indices, taken: WindowInput) -> Mask:
        """Take the segments of the owners for whom arrays can do it, and give a mask of the others,
        whose segments are still to be taken one by one."""
        everybody = np.ones(len(owners), np.bool_)
        self._take_back(owners)
        alone = self._rows.are_elsewhere(owners)
        if self._lateness is not None:
            alone[runs.owner_of[self._are_past(runs.lows)]] = True
        rows, whose = self._rows.of_owners(owners)
        met = meetings(runs, self._rows.bounds(rows), whose, self._gap, COORDINATE_MAX)
        if met is None:
            return everybody
        found, merging = met
        if not self._form.is_exact(taken.extracted):
            alone[runs.merging] = True
            alone[merging] = True
        found = found.without(alone, rows)
        if not len(found.chosen):
            return alone
        states = self._folded(found, taken)
        if states is None:
            return everybody
        self._put(found, owners, states)
        return alone

    def _folded(self, found: Meetings, taken: WindowInput) -> States | None:
        """The states of sessions after runs that join them or begin them; None: arrays cannot."""
        where, codes = found.runs.rows_in(found.chosen)
        values = chosen(taken.extracted, where)
        states: States | None = self._form.first(len(found.chosen), values)
        if states is None or not self._rows.fits(states):
            return None
        joining = found.met != NONE
        for state, before in zip(states, self._rows.states(found.met[joining]), strict=False):
            state[joining] = before
        states = self._form.fold(states, codes, values)
        runs, others = found.joined_by, found.others
        while states is not None and len(others):
            first = np.diff(runs, prepend=NONE) != 0
            merged = self._form.merge(
                tuple(each[runs[first]] for each in states), self._rows.states(others[first])
            )
            if merged is None:
                return None
            for state, both in zip(states, merged, strict=True):
                state[runs[first]] = both
            runs, others = runs[~first], others[~first]
        return states

    def _put(self, found: Meetings, owners: Indices, states: States) -> None:
        """Sessions have got segments, or begin with them."""
        runs, joining = found.runs, found.met != NONE
        its = found.chosen[joining]
        self._rows.remove(found.others)
        bounds = SessionBounds(runs.lows[its], runs.highs[its])
        self._rows.join(found.met[joining], bounds, tuple(each[joining] for each in states))
        self._begin(runs, owners, found.chosen[~joining], tuple(each[~joining] for each in states))
        self._rows.mark(owners[runs.owner_of[found.chosen]])

    def _begin(self, runs: Runs, owners: Indices, mine: Indices, states: States) -> None:
        """Runs are new sessions."""
        order = np.argsort(runs.owner_of[mine], kind="stable")
        its = mine[order]
        self._rows.add(
            owners[runs.owner_of[its]],
            SessionBounds(runs.lows[its], runs.highs[its]),
            tuple(each[order] for each in states),
            np.zeros(len(its), np.uint64),
        )

    def _are_past(self, uppers: Any) -> Mask:
        """Whether segments with these coordinates would be late in sessions of their own."""
        assert self._lateness is not None, "seen before"
        found: Mask = uppers + self._gap + self._lateness < _whole(self._watermarks.task, ceil)
        return found

    def _take_back(self, owners: Indices) -> None:
        """Owners whose objects are all gone have their sessions in arrays again, and what is still
        to be recorded of them is recorded of the rows."""
        away = owners[self._rows.are_elsewhere(owners)]
        back = [
            (owner, key)
            for owner, key in zip(away.tolist(), self._rows.keys(away), strict=True)
            if key not in self._groups
        ]
        unrecorded = [(owner, key) for owner, key in back if (key, None) in self._changed]
        self._rows.move(np.array([owner for owner, _ in back], np.intp), elsewhere=False)
        self._rows.mark(np.array([owner for owner, _ in unrecorded], np.intp))
        for _, key in unrecorded:
            del self._changed[key, None]

    def add_one(self, taken: WindowInput, index: int, key: Any) -> Sequence[Session]:
        """All sessions are objects when somebody looks at single segments: a watermark of shards
        that is ahead of the task's."""
        self._make_objects(self._rows.with_sessions())
        self._unnoted[key] = None
        return super().add_one(taken, index, key)

    # Sessions become objects.

    def settle(self) -> None:
        """Have the rows know which groups have objects."""
        by_type: dict[type, list[Any]] = {}
        for key in self._unnoted:
            by_type.setdefault(type(key), []).append(key)
        for keys in by_type.values():
            owners = self._rows.owners(Groups.each(keys))
            if owners is not None:
                self._leave(owners, elsewhere=True)
                continue
            for key in keys:  # of one type, and yet not all can be owners: ints beyond 64 bits
                one = self._rows.owners(Groups.each([key]))
                if one is not None:
                    self._leave(one, elsewhere=True)
        self._unnoted.clear()

    def _found(self, groups: Groups) -> Indices:
        """The owners that there are of some groups."""
        owners = self._rows.find(groups)
        return owners[owners >= 0]

    def _make_objects(self, owners: Indices) -> None:
        """Owners have their sessions as objects from now on."""
        owners = owners[~self._rows.are_elsewhere(owners)] if len(owners) else owners
        if not len(owners):
            return
        keys = self._rows.keys(owners)
        for key, held in self._copies(owners).items():
            self._groups[key][None] = held
            for session in held:
                self._await(session)
        for index in np.flatnonzero(self._rows.are_marked(owners)).tolist():
            self._changed[keys[index], None] = None
        self._rows.remove(self._rows.of_owners(owners)[0])
        self._rows.move(owners, elsewhere=True)

    def _copies(self, owners: Indices) -> dict[Any, list[Session]]:
        """The sessions of owners as objects, by group."""
        rows, whose = self._rows.of_owners(owners)
        keys = self._rows.keys(owners)
        lowers, uppers = self._rows.bounds(rows)
        made = zip(
            whose.tolist(), lowers.tolist(), uppers.tolist(),
            self._form.to_python(self._rows.states(rows)) if len(rows) else (),
            self._rows.names_of_fired(rows), strict=True,
        )  # fmt: skip
        found: dict[Any, list[Session]] = {}
        for index, lower, upper, state, fired in made:
            session = Session((keys[index], None), lower, upper, state)
            session.fired = fired
            found.setdefault(keys[index], []).append(session)
        return found

    # Extents are looked at and changed.

    def find(self, key: Any, number: int | None = None) -> list[Session]:
        """All extents of a group; those in arrays as copies."""
        if key in self._groups or not self._rows.living:
            return super().find(key)
        return self._copies(self._found(Groups.each([key]))).get(key, [])

    def everything(self, wanted: Wanted) -> Iterator[tuple[Any, Session]]:
        """Each group with each of its extents that is wanted, in any order; those in arrays as
        copies."""
        yield from super().everything(wanted)
        for key, held in self._copies(self._rows.with_sessions()).items():
            yield from ((key, each) for each in held if wanted(each.lower, each.upper))

    def size(self) -> int:
        """How many sessions there are; of groups with objects how many groups."""
        return self._rows.living + super().size()

    def units(self, shards: Collection[int]) -> Callable[[int], Iterator[Unit]]:
        """Each group, with all its sessions, which are objects from now on: at the end of the job
        they fire one by one."""
        self._make_objects(self._rows.with_sessions(shards))
        return super().units(shards)

    def each_bounds(self, extent: Session, many: int) -> Iterable[tuple[Number, Number]]:
        """The bounds of each session of a page."""
        if not isinstance(extent, SessionPage):
            return super().each_bounds(extent, many)
        lowers, uppers = extent.bounds
        return zip(lowers.tolist(), uppers.tolist(), strict=True)

    def reset(self, extent: Session, keys: Collection[Any]) -> None:
        """Give groups that an extent has the first state."""
        if not isinstance(extent, SessionPage):
            super().reset(extent, keys)
            return
        init = self._aggregation.init
        states = self._form.from_python([init() for _ in range(len(extent.rows))])
        if states is not None and self._rows.fits(states):
            self._rows.put(extent.rows, states)
            return
        lowers = extent.bounds.lowers.tolist()
        keys = self._rows.keys(self._rows.owner_of(extent.rows))
        self._make_objects(np.unique(self._rows.owner_of(extent.rows)))
        for key, lower in zip(keys, lowers, strict=True):
            for session in super().find(key):
                if session.lower == lower:
                    self.put(key, session, init())

    # Watermarks pass.

    def pass_watermark(
        self, trigger: Trigger, watermark: Number, shard: int | None, fire: Fire[Any]
    ) -> FiringPages:
        """Have extents fire that a watermark has passed, and that got segments since they fired
        last: those in arrays page by page."""
        while len(rows := self._passed(trigger, watermark)):
            page = self._rows.by_shard(rows[: self._page_max])
            self._rows.fire(trigger.name, page)
            self._rows.mark(self._rows.owner_of(page))
            pairs = SessionPairs(self._rows, self._form, page)
            fired = fire(SessionPage(page, self._rows.bounds(page)), pairs)
            if trigger.forgets:
                self._rows.remove(page)
            yield fired
        yield from super().pass_watermark(trigger, watermark, shard, fire)

    def _passed(self, trigger: Trigger, watermark: Number) -> Indices:
        """The sessions in arrays that fire. They are looked for anew for each page, because rows
        may be compacted between two."""
        due: Any = trigger.due
        passed = due(*self._rows.all_bounds(), self._gap) <= _whole(watermark, floor)
        return np.flatnonzero(passed & self._rows.not_fired(trigger.name))

    def expire(self, watermark: Number, shard: int | None) -> None:
        """Forget extents that a watermark has passed by more than the lateness allowed."""
        if self._lateness is not None and shard is None:
            past = self._are_past(self._rows.all_bounds().uppers)
            rows = np.flatnonzero(past & self._rows.alive())
            self._rows.mark(self._rows.owner_of(rows))
            self._rows.remove(rows)
        super().expire(watermark, shard)

    # State is recorded and restored.

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        self._rows.append_changes(records, self._window)
        super().take_changes(records)
        self._rows = self._rows.compacted()

    def states(self, frozen: Frozen) -> Callable[[int], Iterator[Record]]:
        """What gives the states of a shard, as they are frozen."""
        arrays, objects = self._rows.records(self._window), super().states(frozen)
        return lambda shard: chain(arrays(shard), objects(shard))

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record of `take_changes`, `states` or `snapshot`."""
        if isinstance(record, SetSessionArrays):
            if self._restore_arrays(record):
                return
        elif isinstance(record, SetSessions):
            self._unnoted.update(dict.fromkeys(load_keys(record.groups)))
        super().restore(shard, record)

    def _restore_arrays(self, record: SetSessionArrays) -> bool:
        """Set sessions as recorded; False: arrays do not hold them."""
        self.settle()
        its = sessions_of(record)
        owners = self._rows.owners(its.groups)
        if owners is None or not self._rows.fits(its.states):
            self._leave(self._found(its.groups), elsewhere=True)
            return False
        if self._groups:
            for key in its.groups.keys:
                self._groups.pop(key, None)
        self._leave(owners, elsewhere=False)
        fired = self._rows.bits_of(record.fired, len(its.whose))
        self._rows.add(owners[its.whose], its.bounds, its.states, fired)
        return True

    def _leave(self, owners: Indices, elsewhere: bool) -> None:
        """The sessions of owners go, as others are recorded."""
        self._rows.remove(self._rows.of_owners(owners)[0])
        self._rows.move(owners, elsewhere)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now, with what has changed in them."""
        self.settle()
        self._rows.forget(shards)
        super().drop(shards)


def _whole(watermark: Number, to_whole: Callable[[Number], int]) -> int:
    """A watermark that arrays of ints can be compared with."""
    if not isfinite(watermark):
        return COORDINATE_MAX**2 if watermark > 0 else -(COORDINATE_MAX**2)
    return to_whole(watermark)
