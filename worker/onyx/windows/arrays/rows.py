"""The groups of an extent and their states as rows of arrays.

A batch is folded with some operations on arrays: the rows of its groups are found, their states
taken out, folded by the aggregation (`aggregations/array_forms`), and put back. Rows that have
changed are marked, so that what is recorded are slices.

Invariants: a row that is alive has a state. One that is not has a group that was removed, or that
has no state yet; it is there until `compacted`. A group that comes back gets its row back, with the
first state.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onyx.flow.batch import Indices
from onyx.keystate.coded import Groups, Values
from onyx.keystate.groups import Shards, different, slices_of
from onyx.windows.aggregations.array_forms import ArrayForm, States
from onyx.windows.arrays.growing import Growing
from onyx.windows.arrays.key_table import KeyTable, table_for

_COMPACT_MIN = 1_024
"""Fewer rows than these are not worth it to leave out those that are not alive."""


class Rows:
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

    def compacted(self) -> Rows:
        """Rows without those that are not alive, if these are most. All changes are recorded."""
        if len(self._alive) < _COMPACT_MIN or 2 * self.living > len(self._alive):
            return self
        made = Rows(self._form, self._shards)
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


Ordered = tuple[Indices, dict[int, slice]]
"""Rows by shard, and where each shard has its rows."""
