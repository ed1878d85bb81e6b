"""A bucket whose states are rows of arrays, for tasks over columns.

A batch is folded with some operations on arrays: the rows of its groups are found, their states
taken out, folded by the aggregation (`aggregations/array_forms`), and put back. Rows that have
changed are marked, and records are made of slices. Python objects are made of the groups and states
that somebody asks for. Whoever asks for one group after the other does so in the order in which
`groups` gives them; so the rows of those given last are remembered.

Invariant: a row that is not alive has a group that was removed. It keeps its row until its removal
is recorded; a group that comes back gets its row back, with the first state.

What arrays cannot do (an int beyond 64 bits, a state of another type) changes nothing here and is
said; then the window takes the states over into a bucket of Python's (`plain`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onyx.flow.batch import Indices
from onyx.windows.aggregations.array_forms import ArrayForm, States
from onyx.windows.arrays.growing import Growing
from onyx.windows.arrays.key_table import KeyTable, table_for
from onyx.windows.buckets import Bucket, Form, Pair
from onyx.windows.coded import Groups, Values
from onyx.windows.groups import Shards, dump_keys
from onyx.windows.records import DeleteGroups, Record, Records, SetArrays, append

_GONE: Any = object()
_PAGE = 1_024
"""Groups of which Python objects are made at once."""
_COMPACT_MIN = 1_024
"""Fewer rows than these are not worth it to leave out the dead ones."""


class ArrayBucket(Bucket):
    """States by group, in arrays. The dict that it is has nothing."""

    __slots__ = (
        "_alive",
        "_array_form",
        "_changed",
        "_columns",
        "_living",
        "_near",
        "_ordered",
        "_shard_of_row",
        "_table",
    )  # fmt: skip

    def __init__(self, form: Form, array_form: ArrayForm, shards: Shards) -> None:
        super().__init__(form, shards)
        self._array_form = array_form
        self._near: dict[Any, int] = {}
        """The rows of the groups that were given last."""
        self._begin()

    def _begin(self) -> None:
        """No rows."""
        self._table: KeyTable | None = None
        self._columns: list[Growing[Any]] = []
        self._alive = Growing(np.bool_)
        self._changed = Growing(np.bool_)
        self._shard_of_row = Growing(np.int16)
        self._living = 0
        self._ordered: tuple[Indices, dict[int, slice]] | None = None
        """The rows that are alive, by shard; None: not known."""
        self._near.clear()

    # Whole batches.

    def fold(self, groups: Groups, values: Values) -> Indices | None:
        """Apply what the segments of a batch do.

        Returns:
            The rows of the groups; None: arrays cannot do it, and no state has changed.
        """
        firsts = self._array_form.first(groups.many, values)
        if firsts is None or not self._fits(firsts):
            return None
        rows = self._rows_of(groups)
        if rows is None:
            return None
        before = self._states(rows, firsts)
        after = self._array_form.fold(before, groups.codes, values)
        if after is None:
            return None
        self._put(rows, after)
        return rows

    def merge(self, groups: Groups, states: States) -> Indices | None:
        """Merge states of different groups with those that are there; the rows, or None as for
        `fold`."""
        if not self._fits(states):
            return None
        rows = self._rows_of(groups)
        if rows is None:
            return None
        there = np.flatnonzero(self._are_alive(rows))
        merged = list(states)
        if len(there):
            mine = tuple(each.all[rows[there]] for each in self._columns)
            both = self._array_form.merge(mine, tuple(each[there] for each in states))
            if both is None:
                return None
            merged = [each.copy() for each in states]
            for column, part in zip(merged, both, strict=True):
                column[there] = part
        self._put(rows, tuple(merged))
        return rows

    def set(self, groups: Groups, states: States, changed: bool = True) -> Indices | None:
        """Set the states of different groups; the rows, or None as for `fold`.

        Args:
            changed: whether that is a change to be recorded.
        """
        rows = self._rows_of(groups) if self._fits(states) else None
        if rows is not None:
            self._put(rows, states, changed)
        return rows

    def set_python(self, keys: list[Any], states: list[Any]) -> Indices | None:
        """Set states as the aggregation has them; as `set`."""
        columns = self._array_form.from_python(states)
        return None if columns is None else self.set(Groups.each(keys), columns)

    def _fits(self, states: States) -> bool:
        """Whether states are of the types of those that are there."""
        mine = [each.all.dtype for each in self._columns]
        return not mine or mine == [each.dtype for each in states]

    def _rows_of(self, groups: Groups) -> Indices | None:
        """The rows of different groups. New ones are not alive yet."""
        if self._table is None:
            self._table = table_for(groups)
        rows = self._table.add(groups)
        if rows is None:
            return None
        news = len(self._table) - len(self._alive)
        if news:
            mine = np.arange(len(self._alive), len(self._table))
            self._alive.add_same(False, news)
            self._changed.add_same(False, news)
            column = self._table.column(mine)
            if column is None:
                found = map(self._shards.__getitem__, self._table.keys(mine))
                self._shard_of_row.add(np.fromiter(found, np.int16, news))
            else:
                self._shard_of_row.add(self._shards.of_column(column))
        return rows

    def _are_alive(self, rows: Indices) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self._alive.all[rows]
        return found

    def _states(self, rows: Indices, firsts: States) -> States:
        """The states of rows; the first ones where a group has none."""
        if not self._columns:
            return firsts
        # Rows are made before their states, which those have that are alive.
        alive = self._are_alive(rows)
        if alive.all():
            return tuple(each.all[rows] for each in self._columns)
        there = np.flatnonzero(alive)
        for column, first in zip(self._columns, firsts, strict=True):
            first[there] = column.all[rows[there]]
        return firsts

    def _put(self, rows: Indices, states: States, changed: bool = True) -> None:
        """The states of rows from now on, which are alive."""
        if not self._columns:
            self._columns = [Growing(each.dtype.type) for each in states]
        behind = len(self._alive) - len(self._columns[0])
        for column, its in zip(self._columns, states, strict=True):
            if behind:
                column.add_same(0, behind)
            column.all[rows] = its
        alive = self._alive.all
        born = len(rows) - int(np.count_nonzero(alive[rows]))
        if born:
            alive[rows] = True
            self._living += born
            self._ordered = None
        if changed:
            self._changed.all[rows] = True

    # As a mapping.

    def __missing__(self, key: Any) -> Any:
        state = self.get(key, _GONE)
        if state is _GONE:
            raise KeyError(key)
        return state

    def __setitem__(self, key: Any, state: Any) -> None:
        if self.set_python([key], [state]) is None:
            raise TypeError(f"arrays cannot hold {state!r}")

    def __delitem__(self, key: Any) -> None:
        row = self._row(key)
        if row < 0:
            raise KeyError(key)
        self._remove(np.array([row]))

    def __contains__(self, key: Any) -> bool:
        return self._row(key) >= 0

    def __len__(self) -> int:
        return self._living

    def __bool__(self) -> bool:
        return self._living > 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.groups())

    def get(self, key: Any, default: Any = None) -> Any:
        """The state of a group."""
        row = self._row(key)
        return default if row < 0 else self._python_states(np.array([row]))[0]

    def keys(self) -> Any:
        """All groups."""
        return self.groups()

    def items(self) -> Iterator[Pair]:  # type: ignore[override]
        """Groups with their states."""
        for pairs in self._pairs(self._living_rows(), _PAGE):
            yield from pairs

    def update(self, states: Any) -> None:  # type: ignore[override]
        """Set the states of several groups."""
        pairs = list(states.items() if isinstance(states, dict) else states)
        for key, state in pairs:
            self[key] = state

    def _row(self, key: Any) -> int:
        """The row of a group that is there; -1: it is not."""
        row = self._near.get(key, -1)
        if row < 0 and self._table is not None:
            row = self._table.row(key)
        return row if row >= 0 and self._alive.all[row] else -1

    def _python_states(self, rows: Indices) -> list[Any]:
        return self._array_form.to_python(tuple(each.all[rows] for each in self._columns))

    def _python_keys(self, rows: Indices) -> list[Any]:
        """The groups of rows."""
        if self._table is None:
            return []
        keys = self._table.keys(rows)
        self._remember(keys, rows)
        return keys

    def _remember(self, keys: list[Any], rows: Indices) -> None:
        """Somebody gets these groups, and will ask for them."""
        self._near = dict(zip(keys, rows.tolist(), strict=True))
        self._shards.learn(keys, self._shard_of_row.all[rows].tolist())

    # As a bucket.

    def groups(self, shards: Collection[int] | None = None) -> Iterable[Any]:
        """Groups of some shards, or all; meanwhile they may be changed and removed."""
        if shards is None:
            return self._in_pages(self._living_rows())
        return (key for shard in sorted(shards) for key in self._in_pages(self._of(shard)))

    def by_shard(self, shards: Collection[int]) -> Callable[[int], Iterable[Any]]:
        """What gives the groups of each of these shards."""
        return lambda shard: self._in_pages(self._of(shard))

    def parts(self, most: int) -> Iterator[tuple[int, list[Pair]]]:
        """All groups with their states, shard by shard and at most so many at a time."""
        for shard in sorted(self._by_shard()[1]):
            for pairs in self._pairs(self._of(shard), most):
                yield shard, pairs

    def present(self, keys: Iterable[Any]) -> list[Any]:
        """Those of some groups that are there."""
        asked = list(keys)
        if self._table is None or not asked:
            return []
        rows = self._table.find(Groups.each(asked))
        there = np.flatnonzero(rows >= 0)
        there = there[self._are_alive(rows[there])]
        found = list(map(asked.__getitem__, there.tolist()))
        self._remember(found, rows[there])
        return found

    def remove(self, keys: Iterable[Any]) -> None:
        """Groups that are there go."""
        rows = [self._row(key) for key in keys]
        self._remove(np.array(rows, np.intp))

    def used(self, keys: Iterable[Any]) -> None:
        """All are in memory."""

    def plain(self) -> Bucket:
        """The groups and states in a bucket of Python's."""
        made = Bucket(self._form, self._shards)
        made.update(self.items())
        return made

    def touched(self, rows: Indices) -> Iterable[Any]:
        """The groups of rows, made when somebody asks."""
        return _Touched(self, rows)

    def forget(self, shards: Collection[int], keys: Iterable[Any] = ()) -> None:
        """Groups of some shards go, and some others; nothing of them is recorded."""
        mine = np.isin(self._shard_of_row.all, np.fromiter(shards, np.int16, len(shards)))
        mine[[self._row(key) for key in self.present(keys)]] = True
        self._remove(np.flatnonzero(mine & self._alive.all))
        self._changed.all[mine] = False

    def shards_had(self) -> dict[int, None]:
        """Shards of groups that are there, or were when changes were recorded last."""
        had = self._alive.all | self._changed.all
        return dict.fromkeys(np.unique(self._shard_of_row.all[had]).tolist())

    def unrecorded(self) -> list[Any]:
        """Groups of which something is to be recorded."""
        return self._python_keys(np.flatnonzero(self._changed.all))

    def _remove(self, rows: Indices) -> None:
        self._alive.all[rows] = False
        self._changed.all[rows] = True
        self._living -= len(rows)
        self._ordered = None

    def _living_rows(self) -> Indices:
        return np.flatnonzero(self._alive.all)

    def _in_pages(self, rows: Indices) -> Iterator[Any]:
        """The groups of rows, but those that have gone when their page comes."""
        # Rows may be numbered anew between two pages: what they were is still in the old table.
        table = self._table
        assert table is not None or not len(rows)
        for begin in range(0, len(rows), _PAGE):
            page = rows[begin : begin + _PAGE]
            if table is self._table:
                yield from self._python_keys(page[self._are_alive(page)])
            elif table is not None:
                yield from self.present(table.keys(page))

    def _pairs(self, rows: Indices, most: int) -> Iterator[list[Pair]]:
        """The groups of rows with their states, at most so many at a time; those of a page that was
        given may go."""
        table, columns = self._table, self._columns
        for begin in range(0, len(rows), most):
            page = rows[begin : begin + most]
            assert table is not None
            keys = table.keys(page)
            if table is self._table:
                self._remember(keys, page)
            else:
                self.present(keys)
            states = self._array_form.to_python(tuple(each.all[page] for each in columns))
            yield list(zip(keys, states, strict=True))

    def _by_shard(self) -> tuple[Indices, dict[int, slice]]:
        """The rows that are alive ordered by shard, and where each shard has its rows."""
        if self._ordered is None:
            self._ordered = _ordered(self._living_rows(), self._shard_of_row.all)
        return self._ordered

    def _of(self, shard: int) -> Indices:
        rows, slices = self._by_shard()
        return rows[slices.get(shard, slice(0, 0))]

    # Records.

    def append_changes(self, records: Records, window: str, extent: int) -> None:
        """Add what has changed since the last call."""
        alive, changed = self._alive.all, self._changed.all
        removed = np.flatnonzero(changed & ~alive)
        if len(removed) and self._table is not None:
            rows, slices = _ordered(removed, self._shard_of_row.all)
            for shard, part in slices.items():
                gone = dump_keys(self._table.keys(rows[part]))
                append(records, shard, DeleteGroups(window, extent, gone))
        rows, slices = _ordered(np.flatnonzero(changed & alive), self._shard_of_row.all)
        recorded = self._records(window, extent, rows, list(slices.values()))
        for shard, record in zip(slices, recorded, strict=True):
            append(records, shard, record)
        changed.fill(False)
        self._compact()

    def records(self, window: str, extent: int, shard: int) -> Iterator[Record]:
        """The whole state of a shard."""
        rows = self._of(shard)
        if len(rows):
            yield from self._records(window, extent, rows, [slice(0, len(rows))])

    def _records(
        self, window: str, extent: int, rows: Indices, parts: Sequence[slice]
    ) -> Iterator[SetArrays]:
        """A record for each part of some rows."""
        if self._table is None:
            return
        kind, keys = self._table.kind, self._table.packed(rows, parts)
        columns = [each.all[rows] for each in self._columns]
        types = [each.dtype.str for each in columns]
        for part, groups in zip(parts, keys, strict=True):
            states = [each[part].tobytes() for each in columns]
            yield SetArrays(window, extent, kind, groups, types, states)

    def _compact(self) -> None:
        """Leave out rows that are not alive, when they are most, and all is recorded."""
        if len(self._alive) < _COMPACT_MIN or 2 * self._living > len(self._alive):
            return
        assert self._table is not None
        rows, table = self._living_rows(), self._table
        columns = tuple(each.all[rows] for each in self._columns)
        column = table.column(rows)
        keys = table.keys(rows) if column is None else None
        self._begin()
        if len(rows):
            found = self.set(Groups(np.arange(len(rows)), keys, column), columns, changed=False)
            assert found is not None, "they were there"


class _Touched:
    """Groups of rows of a bucket."""

    def __init__(self, bucket: ArrayBucket, rows: Indices) -> None:
        self._bucket = bucket
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self._bucket._python_keys(self._rows))


def _ordered(rows: Indices, shard_of_row: NDArray[np.int16]) -> tuple[Indices, dict[int, slice]]:
    """Rows ordered by shard, and where each shard has its rows."""
    shards = shard_of_row[rows]
    order = np.argsort(shards, kind="stable")  # two bytes are sorted without comparing
    shards = shards[order]
    firsts = np.flatnonzero(np.diff(shards, prepend=shards[:1] - 1))
    bounds = [*firsts.tolist(), len(rows)]
    numbers = shards[firsts].tolist()
    slices = {
        number: slice(begin, end)
        for number, begin, end in zip(numbers, bounds, bounds[1:], strict=False)
    }
    return rows[order], slices
