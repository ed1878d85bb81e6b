"""A bucket whose states are rows of arrays, for tasks over columns.

Batches come as a whole (`StateRows`): the rows of their groups are found, their states taken out,
folded by the aggregation (`aggregations/array_forms`), and put back. Rows that have changed are
marked, so that what is recorded are slices.

Python objects are made of the groups and states that somebody asks for. Who asks for one group
after the other does so in the order in which the bucket gives them; so the rows of those given last
are remembered, and their shards. Whoever takes many groups together gets columns (`PairsOfRows`),
for which no object is made.

What arrays cannot do (an int beyond 64 bits, a state of another type) changes nothing here and is
said; then the window takes the states over into a bucket of Python's (`plain`).

Invariants: a row that is alive has a state. One that is not has a group that was removed, or that
has no state yet; it is there until `compacted`. A group that comes back gets its row back, with the
first state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onyx.flow.batch import Indices
from onyx.keystate.buckets import Bucket, BucketForm, GroupColumns, Pair, PairsInArrays
from onyx.keystate.coded import Groups, Values
from onyx.keystate.groups import Shards, different, dump_keys, slices_of
from onyx.keystate.records import DeleteGroups, Record, Records, SetArrays, append
from onyx.windows.aggregations.array_forms import ArrayForm, States
from onyx.windows.arrays.growing import Growing
from onyx.windows.arrays.key_table import KeyTable, table_for

_GONE: Any = object()
_PAGE = 1_024
"""Groups of which Python objects are made at once."""


Given = Callable[["StateRows", list[Any], Indices], None]
"""Called with groups that somebody gets, and will ask for, and their rows."""
_COMPACT_MIN = 1_024
"""Fewer rows than these are not worth it to leave out those that are not alive."""
Ordered = tuple[Indices, dict[int, slice]]
"""Rows by shard, and where each shard has its rows."""


class ArrayBucket(Bucket):
    """States by group, in arrays. The dict that it is has nothing."""

    __slots__ = ("_array_form", "_near", "_rows")

    def __init__(self, form: BucketForm, array_form: ArrayForm, shards: Shards) -> None:
        super().__init__(form, shards)
        self._array_form = array_form
        self._rows = StateRows(array_form, shards)
        self._near: dict[Any, int] = {}
        """The rows of the groups that were given last."""

    # Whole batches. Each gives the rows of the groups, or None: arrays cannot do it, and no state
    # has changed.

    def fold(self, groups: Groups, values: Values) -> Indices | None:
        """Apply what the segments of a batch do."""
        return self._rows.fold(groups, values)

    def merge(self, groups: Groups, states: States) -> Indices | None:
        """Merge states of different groups with those that are there."""
        return self._rows.merge(groups, states)

    def restore(self, groups: Groups, states: States, shard: int) -> Indices | None:
        """Set the states of different groups of a shard, which is no change."""
        return self._rows.restore(groups, states, shard)

    def put_all(self, keys: list[Any], states: list[Any]) -> bool:
        """Set the states of different groups; False: arrays cannot hold them."""
        columns = self._array_form.from_python(states)
        if columns is None:
            return False
        rows = self._near_rows(keys)
        if rows is None:
            return self._rows.set(Groups.each(keys), columns) is not None
        return self._rows.put(rows, columns)

    def touched(self, rows: Indices) -> Iterable[Any]:
        """The groups of rows, made when somebody asks."""
        return _Touched(self, rows)

    def forget(self, shards: Collection[int], keys: Iterable[Any] = ()) -> None:
        """Groups of some shards go, and some others; nothing of them is recorded."""
        rows = self._rows.find(list(keys))
        self._rows.forget(rows[rows >= 0], shards)

    def plain(self) -> Bucket:
        """The groups and states in a bucket of Python's."""
        made = Bucket(self._form, self._shards)
        made.update(self.items())
        return made

    # As a mapping.

    def __missing__(self, key: Any) -> Any:
        state = self.get(key, _GONE)
        return self._init() if state is _GONE else state

    def __setitem__(self, key: Any, state: Any) -> None:
        if not self.put_all([key], [state]):
            raise TypeError(f"arrays cannot hold {state!r}")

    def __delitem__(self, key: Any) -> None:
        row = self._row(key)
        if row < 0:
            raise KeyError(key)
        self._rows.remove(np.array([row]))

    def __contains__(self, key: Any) -> bool:
        return self._row(key) >= 0

    def __len__(self) -> int:
        return self._rows.living

    def __bool__(self) -> bool:
        return self._rows.living > 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.groups())

    def get(self, key: Any, default: Any = None) -> Any:
        """The state of a group."""
        row = self._row(key)
        if row < 0:
            return default
        return self._array_form.to_python(self._rows.states(np.array([row])))[0]

    def get_all(self, keys: Sequence[Any], default: Any = None) -> list[Any]:
        """The state of each of some groups."""
        rows = self._rows.find(list(keys))
        found = [default] * len(rows)
        there = np.flatnonzero(rows >= 0)
        states = self._array_form.to_python(self._rows.states(rows[there]))
        for index, state in zip(there.tolist(), states, strict=True):
            found[index] = state
        return found

    def keys(self) -> Any:
        """All groups."""
        return self.groups()

    def items(self) -> Iterator[Pair]:  # type: ignore[override]
        """Groups with their states."""
        for pairs in self._pairs(self._rows, self._rows.all_alive(), _PAGE):
            yield from pairs

    def update(self, states: Any) -> None:  # type: ignore[override]
        """Set the states of several groups."""
        for key, state in list(states.items() if isinstance(states, dict) else states):
            self[key] = state

    def _row(self, key: Any) -> int:
        """The row of a group that is there; -1: it is not."""
        row = self._near.get(key, -1)
        if row >= 0:
            return row if self._rows.are_alive(np.array([row]))[0] else -1
        return self._rows.row(key)

    def _given(self, rows: Indices) -> list[Any]:
        """The groups of rows."""
        keys = self._rows.keys(rows)
        self._remember(keys, rows)
        return keys

    def _remember(self, keys: list[Any], rows: Indices) -> None:
        """Somebody gets these groups, and will ask for them."""
        self._near = dict(zip(keys, rows.tolist(), strict=True))
        self._shards.learn(keys, self._rows.shards(rows))

    # As a bucket.

    def groups(self, shards: Collection[int] | None = None) -> Iterable[Any]:
        """Groups of some shards, or all; meanwhile they may be changed and removed."""
        if shards is None:
            return self._in_pages(self._rows, self._rows.all_alive())
        return (key for shard in sorted(shards) for key in self._of_shard(shard))

    def by_shard(self, shards: Collection[int]) -> Callable[[int], Iterable[Any]]:
        """What gives the groups of each of these shards."""
        return self._of_shard

    def parts(self, most: int) -> Iterator[tuple[int, Sequence[Pair]]]:
        """All groups with their states, shard by shard and at most so many at a time; those that
        were given may be removed."""
        held = self._rows
        rows, slices = held.ordered(held.all_alive())
        for shard, mine in slices.items():
            for pairs in self._pairs(held, rows[mine], most):
                yield shard, pairs

    def present(self, keys: Iterable[Any]) -> list[Any]:
        """Which of some groups are there."""
        return self._present(list(keys))[0]

    def _present(self, keys: list[Any]) -> tuple[list[Any], Indices]:
        """Which of some groups are there, and their rows."""
        rows = self._near_rows(keys)
        if rows is not None and self._rows.are_alive(rows).all():
            return keys, rows
        rows = self._rows.find(keys)
        there = np.flatnonzero(rows >= 0)
        found = list(map(keys.__getitem__, there.tolist()))
        self._remember(found, rows[there])
        return found, rows[there]

    def _near_rows(self, keys: list[Any]) -> Indices | None:
        """The rows of groups that were all given last; None: look for them."""
        rows = list(map(self._near.get, keys))
        return None if None in rows else np.array(rows, np.intp)

    def pairs(self, keys: Sequence[Any] | None = None) -> Sequence[Pair]:
        """The groups of these that are there, or all, with their states."""
        held = self._rows
        rows = held.all_alive() if keys is None else self._present(list(keys))[1]
        return PairsOfRows(held, self._array_form, rows, self._hand_out)

    def remove(self, keys: Iterable[Any]) -> None:
        """Groups that are there go."""
        self._rows.remove(self._present(list(keys))[1])

    def used(self, keys: Iterable[Any]) -> None:
        """All are in memory."""

    def _of_shard(self, shard: int) -> Iterator[Any]:
        return self._in_pages(self._rows, self._rows.of_shard(shard))

    # Rows may be compacted between two pages of a walk: so it holds those with which it began.

    def _in_pages(self, held: StateRows, rows: Indices) -> Iterator[Any]:
        """The groups of rows, but those that have gone when their page comes."""
        for begin in range(0, len(rows), _PAGE):
            page = rows[begin : begin + _PAGE]
            if held is self._rows:
                yield from self._given(page[held.are_alive(page)])
            else:
                yield from self.present(held.keys(page))

    def _pairs(self, held: StateRows, rows: Indices, most: int) -> Iterator[Sequence[Pair]]:
        """The groups of rows with their states, at most so many at a time."""
        for begin in range(0, len(rows), most):
            page = rows[begin : begin + most]
            yield PairsOfRows(held, self._array_form, page, self._hand_out)

    def _hand_out(self, held: StateRows, keys: list[Any], rows: Indices) -> None:
        """Somebody gets these groups of rows that may have been compacted since."""
        if held is self._rows:
            self._remember(keys, rows)
        else:
            self.present(keys)

    # What is recorded.

    def shards_had(self) -> dict[int, None]:
        """Shards of groups that are there, or were when changes were recorded last."""
        _, removed = self._rows.changed()
        rows = np.concatenate((self._rows.all_alive(), removed))
        return dict.fromkeys(sorted(set(self._rows.shards(rows))))

    def unrecorded(self) -> list[Any]:
        """Groups of which something is to be recorded."""
        return self._given(np.concatenate(self._rows.changed()))

    def append_changes(self, records: Records, window: str, extent: int) -> None:
        """Add what has changed since the last call."""
        changed, removed = self._rows.changed()
        rows, slices = self._rows.ordered(removed)
        for shard, part in slices.items():
            gone = dump_keys(self._rows.keys(rows[part]))
            append(records, shard, DeleteGroups(window, extent, gone))
        rows, slices = self._rows.ordered(changed)
        recorded = self._recorded(window, extent, rows, list(slices.values()))
        for shard, record in zip(slices, recorded, strict=True):
            append(records, shard, record)
        self._rows.unmark()
        compacted = self._rows.compacted()
        if compacted is not self._rows:
            self._rows, self._near = compacted, {}

    def records(self, window: str, extent: int, shard: int) -> Iterator[Record]:
        """The whole state of a shard."""
        rows = self._rows.of_shard(shard)
        if len(rows):
            yield from self._recorded(window, extent, rows, [slice(0, len(rows))])

    def _recorded(
        self, window: str, extent: int, rows: Indices, parts: Sequence[slice]
    ) -> Iterator[SetArrays]:
        """A record for each part of some rows."""
        table, columns = self._rows.table, self._rows.states(rows)
        if table is None:
            return
        types = [each.dtype.str for each in columns]
        for part, groups in zip(parts, table.packed(rows, parts), strict=True):
            states = [each[part].tobytes() for each in columns]
            yield SetArrays(window, extent, table.kind, groups, types, states)


class _Touched:
    """Groups of rows of a bucket."""

    def __init__(self, bucket: ArrayBucket, rows: Indices) -> None:
        self._bucket = bucket
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._bucket._given(self._rows))


class PairsOfRows(PairsInArrays):
    """Some rows of an extent. To be read before its states change."""

    def __init__(self, held: StateRows, form: ArrayForm, rows: Indices, given: Given) -> None:
        self._held = held
        self._form = form
        self._rows = rows
        self._given = given

    def __len__(self) -> int:
        return len(self._rows)

    def groups(self) -> list[Any]:
        """The groups."""
        keys = self._held.keys(self._rows)
        self._given(self._held, keys, self._rows)
        return keys

    def held(self) -> GroupColumns | None:
        """Both as columns; None: no column holds the groups."""
        rows, slices = self._held.ordered(self._rows)
        table = self._held.table
        groups = None if table is None else table.column(rows)
        if groups is None:
            return None
        return GroupColumns(groups, self._form.to_arrow(self._held.states(rows)), slices)

    def states(self) -> list[Any]:
        """Their states, as Python has them."""
        return self._form.to_python(self._held.states(self._rows))


class StateRows:
    """The rows of one extent. What has a row as an argument has one that is there."""

    def __init__(self, form: ArrayForm, shards: Shards) -> None:
        self._form = form
        self._shards = shards
        self.table: KeyTable | None = None
        """None before there is a group."""
        self.columns: list[Growing[Any]] = []
        """The states; none before there is one."""
        self._alive = Growing(np.bool_)
        self._changed = Growing(np.bool_)
        self._shard_of_row = Growing(np.int16)
        self._shards_had: set[int] = set()
        """Shards that some row has, alive or not."""
        self.living = 0
        """How many rows are alive."""
        self._ordered: Ordered | None = None
        """Rows by shard, of which some may not be alive any more; None: some may be missing."""

    # Groups get states. Each gives the rows of the groups, or None: arrays cannot do it, and no
    # state has changed.

    def fold(self, groups: Groups, values: Values) -> Indices | None:
        """Apply what the segments of a batch do."""
        firsts = self._form.first(groups.many, values)
        rows = None if firsts is None else self._rows_for(groups, firsts)
        if firsts is None or rows is None:
            return None
        states = self._form.fold(self._states_or(firsts, rows), groups.codes, values)
        return None if states is None else self._put(rows, states)

    def merge(self, groups: Groups, states: States) -> Indices | None:
        """Merge states of different groups with those that are there."""
        rows = self._rows_for(groups, states)
        if rows is None:
            return None
        there = np.flatnonzero(self.are_alive(rows))
        if len(there):
            both = self._form.merge(self.states(rows[there]), tuple(e[there] for e in states))
            if both is None:
                return None
            states = tuple(each.copy() for each in states)
            for column, merged in zip(states, both, strict=True):
                column[there] = merged
        return self._put(rows, states)

    def set(self, groups: Groups, states: States, changed: bool = True) -> Indices | None:
        """Set the states of different groups.

        Args:
            changed: whether that is a change to be recorded.
        """
        rows = self._rows_for(groups, states)
        return None if rows is None else self._put(rows, states, changed)

    def restore(self, groups: Groups, states: States, shard: int) -> Indices | None:
        """Set the states of different groups of a shard, which is no change. Those of a shard that
        no row has are new."""
        if shard in self._shards_had:
            return self.set(groups, states, changed=False)
        if not self._fits(states):
            return None
        if self.table is None:
            self.table = table_for(groups)
        if not self.table.append(groups):
            return None
        rows = np.arange(len(self._alive), len(self.table))
        self._shards_had.add(shard)
        self._shard_of_row.add_same(shard, len(rows))
        self._add_dead(len(rows))
        return self._put(rows, states, changed=False)

    def put(self, rows: Indices, states: States) -> bool:
        """Set the states of rows, which is a change; False: arrays cannot."""
        return self._fits(states) and self._put(rows, states) is rows

    def _fits(self, states: States) -> bool:
        """Whether states are like those that are there."""
        types = [each.dtype for each in states]
        return not self.columns or [each.all.dtype for each in self.columns] == types

    def _rows_for(self, groups: Groups, states: States) -> Indices | None:
        """The rows of different groups, if states like these are like those that are there."""
        if not self._fits(states):
            return None
        if self.table is None:
            self.table = table_for(groups)
        rows = self.table.add(groups)
        before, now = len(self._alive), len(self.table)
        if rows is None or now == before:
            return rows
        mine = np.arange(before, now)
        self._add_dead(len(mine))
        column = self.table.column(mine)
        if column is None:
            found = list(map(self._shards.__getitem__, self.table.keys(mine)))
            shards = np.array(found, np.int16)
        else:
            shards = self._shards.of_column(column)
        self._shard_of_row.add(shards)
        self._shards_had.update(different(shards))
        return rows

    def _add_dead(self, many: int) -> None:
        """So many rows more, whose groups have no states yet."""
        self._alive.add_same(False, many)
        self._changed.add_same(False, many)

    def _states_or(self, firsts: States, rows: Indices) -> States:
        """The states of rows; the first ones where they have none."""
        there = np.flatnonzero(self.are_alive(rows))
        if len(there) == len(rows):
            return self.states(rows)
        for first, column in zip(firsts, self.states(rows[there]), strict=False):
            first[there] = column
        return firsts

    def _put(self, rows: Indices, states: States, changed: bool = True) -> Indices:
        if not self.columns:
            self.columns = [Growing(each.dtype.type) for each in states]
        for column, its in zip(self.columns, states, strict=True):
            column.add_same(0, len(self._alive) - len(column))
            column.all[rows] = its
        born = len(rows) - int(np.count_nonzero(self.are_alive(rows)))
        if born:
            self._alive.all[rows] = True
            self.living += born
            self._ordered = None
        if changed:
            self._changed.all[rows] = True
        return rows

    # Groups go.

    def remove(self, rows: Indices) -> None:
        """Rows that are alive are not any more, which is a change."""
        self._alive.all[rows] = False
        self._changed.all[rows] = True
        self.living -= len(rows)

    def forget(self, rows: Indices, shards: Collection[int]) -> None:
        """Some rows, and those of some shards, go; nothing of them is recorded."""
        mine = np.isin(self._shard_of_row.all, np.fromiter(shards, np.int16, len(shards)))
        mine[rows] = True
        self.remove(np.flatnonzero(mine & self._alive.all))
        self._changed.all[mine] = False

    def compacted(self) -> StateRows:
        """Rows without those that are not alive, if these are most. All changes are recorded."""
        if len(self._alive) < _COMPACT_MIN or 2 * self.living > len(self._alive):
            return self
        made = StateRows(self._form, self._shards)
        rows = np.flatnonzero(self._alive.all)
        if len(rows) and self.table is not None:
            column = self.table.column(rows)
            keys = self.table.keys(rows) if column is None else None
            groups = Groups(np.arange(len(rows)), keys, column)
            found = made.set(groups, self.states(rows), changed=False)
            assert found is not None, "they were there"
        return made

    # What there is.

    def row(self, key: Any) -> int:
        """The row of a group that is there; -1: it is not."""
        row = -1 if self.table is None else self.table.row(key)
        return row if row >= 0 and self._alive.all[row] else -1

    def find(self, keys: list[Any]) -> Indices:
        """The row of each group; -1: it is not there."""
        if self.table is None or not keys:
            return np.full(len(keys), -1)
        rows = self.table.find(Groups.each(keys))
        there = rows >= 0
        there[there] = self.are_alive(rows[there])
        return np.where(there, rows, -1)

    def are_alive(self, rows: Indices) -> NDArray[np.bool_]:
        """Which rows are alive."""
        found: NDArray[np.bool_] = self._alive.all[rows]
        return found

    def all_alive(self) -> Indices:
        """The rows that are alive, in the order of their groups."""
        return np.flatnonzero(self._alive.all)

    def keys(self, rows: Indices) -> list[Any]:
        """The groups of rows."""
        return [] if self.table is None else self.table.keys(rows)

    def states(self, rows: Indices) -> States:
        """The states of rows."""
        return tuple(each.all[rows] for each in self.columns)

    def shards(self, rows: Indices) -> list[int]:
        """The shards of rows."""
        found: list[int] = self._shard_of_row.all[rows].tolist()
        return found

    def of_shard(self, shard: int) -> Indices:
        """The rows of a shard that are alive."""
        if self._ordered is None:
            self._ordered = self.ordered(self.all_alive())
        rows, slices = self._ordered
        mine = rows[slices.get(shard, slice(0, 0))]
        return mine[self.are_alive(mine)]

    def ordered(self, rows: Indices) -> Ordered:
        """Rows ordered by shard."""
        shards = self._shard_of_row.all[rows]
        order = np.argsort(shards, kind="stable")  # two bytes are sorted without comparing
        return rows[order], slices_of(shards[order])

    # What has changed.

    def changed(self) -> tuple[Indices, Indices]:
        """Rows that have changed since `unmark`: those that are alive, and the others."""
        rows = np.flatnonzero(self._changed.all)
        alive = self.are_alive(rows)
        return rows[alive], rows[~alive]

    def unmark(self) -> None:
        """All that has changed is recorded."""
        self._changed.all.fill(False)
