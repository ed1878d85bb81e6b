"""Sessions of many groups as rows of arrays, how many fire together, and how records have them.

A group has a row, its *owner*, and each session has one: the sessions of an owner are a chain, from
the last that was linked to the first. So those of the owners of a batch are found in as many steps
as one of them has sessions.

Invariants: a session that is alive is in the chain of its owner, and no other is. An owner that is
*elsewhere* has no session here: somebody keeps its sessions as objects. One that has no session, is
not elsewhere and of which nothing is to be recorded is there until `compacted`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from onyx.flow.batch import Indices, Mask
from onyx.keystate.buckets import GroupColumns, PairsInArrays
from onyx.keystate.coded import Groups
from onyx.keystate.groups import Shards, dump_key, slices_of
from onyx.keystate.records import Record, Records, SetSessionArrays, SetSessions, append
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.array_forms import ArrayForm, States
from onyx.windows.arrays.growing import Growing
from onyx.windows.arrays.key_table import KeyTable, table_for, unpacked

_COMPACT_MIN = 1_024
"""Fewer rows than these are not worth it to leave out those that are not alive."""
_NONE = -1


Ints = NDArray[np.int64]


class SessionRows:
    """The sessions of one window. What has owners or rows as an argument has some that are
    there."""

    def __init__(self, form: ArrayForm, shards: Shards, triggers: Sequence[str]) -> None:
        """
        Args:
            triggers: names of those that fire when a watermark passes, 64 at most.
        """
        self._form = form
        self._shards = shards
        self._triggers = triggers
        self.table: KeyTable | None = None
        """The groups of owners; None before there is one."""
        self._last = Growing(np.intp)
        """The session of an owner at the end of its chain."""
        self._changed = Growing(np.bool_)
        self._elsewhere = Growing(np.bool_)
        self._shard_of = Growing(np.int16)
        # Columns of sessions.
        self._owner = Growing(np.intp)
        self._before = Growing(np.intp)
        """The next one of the chain."""
        self._alive = Growing(np.bool_)
        self._lowers = Growing(np.int64)
        self._uppers = Growing(np.int64)
        self._fired = Growing(np.uint64)
        """A bit for each trigger that has seen the last segment."""
        self._columns: list[Growing[Any]] = []
        """The states; none before there is one."""
        self.living = 0
        """How many sessions there are."""

    # Owners.

    def owners(self, groups: Groups) -> Indices | None:
        """The owner of each of these different groups, a new one if need be; None: they are of
        another type."""
        if self.table is None:
            self.table = table_for(groups)
        before = len(self.table)
        owners = self.table.add(groups)
        news = np.arange(before, len(self.table))
        if owners is None or not len(news):
            return owners
        self._last.add_same(_NONE, len(news))
        self._changed.add_same(False, len(news))
        self._elsewhere.add_same(False, len(news))
        column = self.table.column(news)
        if column is None:
            found = list(map(self._shards.__getitem__, self.table.keys(news)))
            self._shard_of.add(np.array(found, np.int16))
        else:
            self._shard_of.add(self._shards.of_column(column))
        return owners

    def find(self, groups: Groups) -> Indices:
        """The owner of each group, or -1."""
        return np.full(groups.many, _NONE) if self.table is None else self.table.find(groups)

    def keys(self, owners: Indices) -> list[Any]:
        """The groups of owners."""
        return [] if self.table is None else self.table.keys(owners)

    def with_sessions(self, shards: Collection[int] | None = None) -> Indices:
        """Owners that have sessions, of some shards or all."""
        there = self._last.all >= 0
        return np.flatnonzero(there if shards is None else there & self._of_shards(shards))

    def are_elsewhere(self, owners: Indices) -> Mask:
        """Which owners have their sessions elsewhere."""
        found: Mask = self._elsewhere.all[owners]
        return found

    def move(self, owners: Indices, elsewhere: bool) -> None:
        """Owners that have no session here have them elsewhere from now on, or not any more."""
        self._elsewhere.all[owners] = elsewhere
        self._changed.all[owners] = False

    def mark(self, owners: Indices) -> None:
        """Something of these is to be recorded."""
        self._changed.all[owners] = True

    def are_marked(self, owners: Indices) -> Mask:
        """Which owners have something that is to be recorded."""
        found: Mask = self._changed.all[owners]
        return found

    def forget(self, shards: Collection[int]) -> None:
        """The sessions of some shards go; nothing of them is recorded."""
        mine = np.flatnonzero(self._of_shards(shards))
        self.remove(self.of_owners(mine)[0])
        self.move(mine, elsewhere=False)

    def _of_shards(self, shards: Collection[int]) -> Mask:
        return np.isin(self._shard_of.all, np.fromiter(shards, np.int16, len(shards)))

    # Sessions.

    def of_owners(self, owners: Indices) -> tuple[Indices, Indices]:
        """The sessions of different owners and the index of the owner of each, ordered by both: the
        sessions of an owner by their coordinates."""
        rows, whose = self._last.all[owners], np.arange(len(owners))
        found: list[tuple[Indices, Indices]] = []
        while len(whose):
            there = rows >= 0
            rows, whose = rows[there], whose[there]
            found.append((rows, whose))
            rows = self._before.all[rows]
        if not found:
            return np.empty(0, np.intp), np.empty(0, np.intp)
        rows, whose = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.lexsort((self._lowers.all[rows], whose))
        return rows[order], whose[order]

    def owner_of(self, rows: Indices) -> Indices:
        """The owners of sessions."""
        found: Indices = self._owner.all[rows]
        return found

    def bounds(self, rows: Indices) -> SessionBounds:
        """The coordinates of sessions."""
        return SessionBounds(self._lowers.all[rows], self._uppers.all[rows])

    def states(self, rows: Indices) -> States:
        """The states of sessions."""
        return tuple(each.all[rows] for each in self._columns)

    def names_of_fired(self, rows: Indices) -> list[list[str]]:
        """The triggers that have seen the last segment of each session."""
        bits = self._fired.all[rows].tolist()
        return [[name for n, name in enumerate(self._triggers) if bit >> n & 1] for bit in bits]

    def fits(self, states: States) -> bool:
        """Whether states are like those that are there."""
        types = [each.dtype for each in states]
        return not self._columns or [each.all.dtype for each in self._columns] == types

    def add(
        self, owners: Indices, bounds: SessionBounds, states: States, fired: NDArray[np.uint64]
    ) -> None:
        """New sessions.

        Args:
            owners: of each, those of one beside each other.
        """
        if not len(owners):
            return
        first, many = len(self._owner), len(owners)
        rows = np.arange(first, first + many)
        new = np.diff(owners, prepend=_NONE) != 0
        self._before.add(np.where(new, self._last.all[owners], rows - 1))
        self._last.all[owners] = rows  # of one owner the last assignment stays
        self._owner.add(owners)
        self._alive.add_same(True, many)
        self._lowers.add(bounds.lowers)
        self._uppers.add(bounds.uppers)
        self._fired.add(fired)
        if not self._columns:
            self._columns = [Growing(each.dtype.type) for each in states]
        for column, its in zip(self._columns, states, strict=True):
            column.add(its)
        self.living += many

    def join(self, rows: Indices, bounds: SessionBounds, states: States) -> None:
        """Sessions have got segments."""
        if not len(rows):
            return
        self._lowers.all[rows] = np.minimum(self._lowers.all[rows], bounds.lowers)
        self._uppers.all[rows] = np.maximum(self._uppers.all[rows], bounds.uppers)
        self._fired.all[rows] = 0
        self.put(rows, states)

    def put(self, rows: Indices, states: States) -> None:
        """Sessions get other states."""
        for column, its in zip(self._columns, states, strict=True):
            column.all[rows] = its

    def remove(self, rows: Indices) -> None:
        """Sessions go."""
        if not len(rows):
            return
        self._alive.all[rows] = False
        self.living -= len(rows)
        owners = np.unique(self._owner.all[rows])
        left, whose = self.of_owners(owners)
        there = self._alive.all[left]
        left, whose = left[there], whose[there]
        new = np.diff(whose, prepend=_NONE) != 0
        self._last.all[owners] = _NONE
        self._before.all[left] = np.where(new, _NONE, np.roll(left, 1))
        self._last.all[owners[whose]] = left

    # What is due.

    def not_fired(self, trigger: str) -> Mask:
        """Which sessions, alive, have a last segment that a trigger has not seen."""
        bit = np.uint64(1 << self._triggers.index(trigger))
        found: Mask = self._alive.all & (self._fired.all & bit == 0)
        return found

    def alive(self) -> Mask:
        """Which rows are sessions."""
        return self._alive.all

    def all_bounds(self) -> SessionBounds:
        """The coordinates of all rows."""
        return SessionBounds(self._lowers.all, self._uppers.all)

    def fire(self, trigger: str, rows: Indices) -> None:
        """A trigger has seen the last segments of sessions."""
        self._fired.all[rows] |= np.uint64(1 << self._triggers.index(trigger))

    def by_shard(self, rows: Indices) -> Indices:
        """Sessions ordered by the shards of their owners."""
        return rows[np.argsort(self._shard_of.all[self._owner.all[rows]], kind="stable")]

    def slices(self, rows: Indices) -> dict[int, slice]:
        """Where each shard has its sessions, of `by_shard`."""
        return slices_of(self._shard_of.all[self._owner.all[rows]])

    # What is recorded.

    def append_changes(self, records: Records, window: str) -> None:
        """Add what has changed since the last call."""
        changed = np.flatnonzero(self._changed.all)
        self._append(records, window, changed)
        self._changed.all.fill(False)

    def records(self, window: str) -> Callable[[int], Sequence[Record]]:
        """What gives all sessions of a shard."""
        owners = self.with_sessions()
        owners = owners[np.argsort(self._shard_of.all[owners], kind="stable")]
        slices = slices_of(self._shard_of.all[owners])

        def of_shard(shard: int) -> Sequence[Record]:
            records: Records = {}
            self._append(records, window, owners[slices.get(shard, slice(0))])
            return records.get(shard, [])

        return of_shard

    def _append(self, records: Records, window: str, owners: Indices) -> None:
        """Add all sessions of some owners, a record a shard."""
        if self.table is None or not len(owners):
            return
        owners = owners[np.argsort(self._shard_of.all[owners], kind="stable")]
        slices = slices_of(self._shard_of.all[owners])
        rows, whose = self.of_owners(owners)
        counts = np.bincount(whose, minlength=len(owners)).astype("<i4")
        ends = np.concatenate(([0], np.cumsum(counts)))
        types = [each.all.dtype.str for each in self._columns]
        packed = self.table.packed(owners, list(slices.values()))
        for (shard, part), groups in zip(slices.items(), packed, strict=True):
            mine = rows[ends[part.start] : ends[part.stop]]
            numbers = [*self.bounds(mine), *self.states(mine)]
            columns = [each.astype(each.dtype.newbyteorder("<")).tobytes() for each in numbers]
            its = SetSessionArrays(
                window, self.table.kind, groups, counts[part].tobytes(), columns[:2], types,
                columns[2:], self._fired_of(mine),
            )  # fmt: skip
            append(records, shard, its)

    def _fired_of(self, rows: Indices) -> dict[str, bytes]:
        """For each trigger that has fired whether it has seen the last segment of each session."""
        bits = self._fired.all[rows]
        found = {}
        for number, name in enumerate(self._triggers):
            seen = (bits >> np.uint64(number) & np.uint64(1)).astype(np.bool_)
            if seen.any():
                found[name] = seen.tobytes()
        return found

    def bits_of(self, fired: Mapping[str, bytes], many: int) -> NDArray[np.uint64]:
        """What `_fired_of` said, of the triggers that there are."""
        bits = np.zeros(many, np.uint64)
        for number, name in enumerate(self._triggers):
            if name in fired:
                seen = np.frombuffer(fired[name], np.bool_)
                bits |= seen.astype(np.uint64) << np.uint64(number)
        return bits

    def compacted(self) -> SessionRows:
        """Rows without those that are not alive, if these are most. All changes are recorded."""
        keep = np.flatnonzero((self._last.all >= 0) | self._elsewhere.all)
        most = max(len(self._owner) - self.living, len(self._last) - len(keep))
        if most < _COMPACT_MIN or 2 * most < max(len(self._owner), len(self._last)):
            return self
        made = SessionRows(self._form, self._shards, self._triggers)
        if len(keep) and self.table is not None:
            column = self.table.column(keep)
            keys = self.table.keys(keep) if column is None else None
            made.owners(Groups(np.arange(len(keep)), keys, column))
            made.move(np.flatnonzero(self._elsewhere.all[keep]), elsewhere=True)
            rows, whose = self.of_owners(keep)
            made.add(whose, self.bounds(rows), self.states(rows), self._fired.all[rows])
        return made


class SessionPage(NamedTuple):
    """In place of an extent: several sessions."""

    rows: Indices
    bounds: SessionBounds


class SessionPairs(PairsInArrays):
    """The groups and states of sessions in the order of shards. To be read before they change."""

    def __init__(self, held: SessionRows, form: ArrayForm, rows: Indices) -> None:
        self._held = held
        self._form = form
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def groups(self) -> list[Any]:
        """The groups, one of several sessions as often."""
        return self._held.keys(self._held.owner_of(self._rows))

    def held(self) -> GroupColumns | None:
        """All as columns; None: no column holds the groups."""
        table = self._held.table
        groups = None if table is None else table.column(self._held.owner_of(self._rows))
        if groups is None:
            return None
        states = self._form.to_arrow(self._held.states(self._rows))
        bounds = tuple(map(pa.array, self._held.bounds(self._rows)))
        return GroupColumns(groups, states, self._held.slices(self._rows), bounds)

    def states(self) -> list[Any]:
        """Their states, as Python has them."""
        return self._form.to_python(self._held.states(self._rows))


class SessionBounds(NamedTuple):
    """The first and the last coordinates of sessions."""

    lowers: Ints
    uppers: Ints


class SessionArrays(NamedTuple):
    """What a record says of sessions."""

    groups: Groups
    counts: NDArray[np.int32]
    """How many sessions each group has: those of a group together."""
    bounds: SessionBounds
    states: States

    @property
    def whose(self) -> Indices:
        """The group of each session."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


def sessions_of(record: SetSessionArrays) -> SessionArrays:
    """The sessions of a record, as arrays."""
    groups = unpacked(record.keys, record.groups)
    lowers, uppers = (np.frombuffer(each, "<i8") for each in record.bounds)
    columns = zip(record.types, record.states, strict=True)
    states = tuple(np.frombuffer(data, kind) for kind, data in columns)
    return SessionArrays(
        groups, np.frombuffer(record.counts, "<i4"), SessionBounds(lowers, uppers), states
    )


def as_objects(record: SetSessionArrays, aggregation: Aggregation) -> SetSessions:
    """What the record says, in objects."""
    form = aggregation.array_form()
    assert form is not None, "the record was made by one"
    its = sessions_of(record)
    states = aggregation.dump_all(form.to_python(its.states)) if its.states else []
    lowers, uppers = (each.tolist() for each in its.bounds)
    seen = {name: np.frombuffer(each, np.bool_).tolist() for name, each in record.fired.items()}
    fired = [[name for name in seen if seen[name][at]] for at in range(len(lowers))]
    ends = np.cumsum(its.counts).tolist()
    mine = [slice(end - many, end) for end, many in zip(ends, its.counts.tolist(), strict=True)]
    groups = [dump_key(key) for key in its.groups.keys]
    columns = [[each[at] for at in mine] for each in (lowers, uppers)]
    held, seen_by = [states[at] for at in mine], [fired[at] for at in mine]
    nothing = [None] * len(groups)
    return SetSessions(record.window, groups, nothing, columns[0], columns[1], held, seen_by)
