"""What questions see of a table: its rows by key, each version of a row with its extent of time.

Rows are in the order of answers (`keystate/selection`), so what a question is about lies together,
and a page costs as much as it has rows. The order is made when somebody first asks, once for each
time that the table is read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onyx.flow.arrays import Indices
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Row, to_dicts
from onyx.flow.columns.values import python_values
from onyx.joins.keys import beyond, kind_of, plain
from onyx.joins.table import Table
from onyx.keystate.extents import ALL, FROM, TO, Extent, Number
from onyx.keystate.groups import group_value, hashable_key
from onyx.keystate.selection import Selection, place

ROWS_AT_ONCE = 1_024


class AskedTable:
    """The rows of a table that are found by their key, in order. Any thread may ask."""

    def __init__(self, table: Table) -> None:
        """Raises UserError: a key is none that groups have."""
        self.table = table
        self._rows, self._validity = table.valid()
        order = self._in_order()
        self._rows = self._rows[order]
        self._validity = None if self._validity is None else self._validity.take(order)

    def query(self, asked: Selection, extents_max: int | None = None) -> list[Extent]:
        """The extents that are asked for, the first in order."""
        found: list[Extent] = []
        first, end = self._run(asked)
        for start in range(first, end, ROWS_AT_ONCE):
            some = range(start, min(end, start + ROWS_AT_ONCE))
            left = None if extents_max is None else extents_max - len(found)
            found += self._extents(self._meant(some, asked)[:left])
            if len(found) == extents_max:
                break
        return found

    def _run(self, asked: Selection) -> tuple[int, int]:
        """Where all lies that is asked for, and perhaps more."""
        everywhere = range(len(self._rows))
        first, end = 0, len(self._rows)
        if asked.key is not ALL:
            key = group_value(hashable_key(asked.key))
            first, end = self._before(key, FROM), self._before(key, TO)
        if asked.key_from is not None:
            first = self._before(asked.key_from, FROM)
        if asked.key_to is not None:
            end = self._before(asked.key_to, FROM)
        if type(asked.prefix) is str:
            first = self._before(asked.prefix, FROM)
            end = bisect_left(everywhere, True, first, key=lambda at: not self._is_of(at, asked))
        if asked.after is not None:
            first = max(first, bisect_right(everywhere, asked.after.order, key=self._order))
        return first, end

    def _before(self, group: Any, bound: Number) -> int:
        """How many come before a group, or with the last bound before the next one."""
        order = place(group, bound, bound, ()).order
        return bisect_right(range(len(self._rows)), order, key=self._order)

    def _is_of(self, at: int, asked: Selection) -> bool:
        (group,) = self._groups([at])
        return asked.has_group(group)

    def _meant(self, some: range, asked: Selection) -> list[int]:
        groups = self._groups(some)
        by_group = asked.key is ALL and asked.by_group
        return [
            at
            for at, group in zip(some, groups, strict=True)
            if (not by_group or asked.has_group(group)) and asked.has_extent(*self._bounds(at))
        ]

    def _extents(self, some: Sequence[int]) -> list[Extent]:
        groups, rows = self._groups(some), self._dicts(some)
        return [
            Extent(group, *self._bounds(at), row)
            for at, group, row in zip(some, groups, rows, strict=True)
        ]

    def _dicts(self, some: Sequence[int]) -> list[Row]:
        return to_dicts(self.table.rows.take(self._rows[some]))

    def _groups(self, some: Sequence[int]) -> list[Any]:
        """The keys of some rows, as groups are: of several parts a dict."""
        chosen = pa.array(self._rows[some])
        parts = [python_values(self.table.column(each).take(chosen)) for each in self.table.key]
        if len(parts) == 1:
            return [group_value(hashable_key(each)) for each in parts[0]]
        keys = (dict(zip(self.table.key, each, strict=True)) for each in zip(*parts, strict=True))
        return [group_value(hashable_key(each)) for each in keys]

    def _bounds(self, at: int) -> tuple[Number, Number]:
        return (FROM, TO) if self._validity is None else self._validity.bounds(at)

    def _order(self, at: int) -> tuple[Any, ...]:
        (group,) = self._groups([at])
        return place(group, *self._bounds(at), ()).order

    def _in_order(self) -> Indices:
        """The order of what there is."""
        key = self.table.column(self.table.key[0])
        if len(self.table.key) == 1 and _in_columns(key):
            columns = {"key": plain(key).take(pa.array(self._rows))}
            if self._validity is not None:
                columns["from"] = pa.array(self._validity.firsts)
            by = [(each, "ascending") for each in columns]
            found: Indices = pc.sort_indices(pa.table(columns), sort_keys=by).to_numpy()
            return found
        groups = self._groups(range(len(self._rows)))
        orders = [place(group, *self._bounds(at), ()).order for at, group in enumerate(groups)]
        return np.array(sorted(range(len(orders)), key=orders.__getitem__), np.intp)


def _in_columns(key: pa.Array) -> bool:
    """Whether groups are in the order of a column (`keystate/selection`)."""
    kind = kind_of(key.type)
    return kind == "text" or (kind == "number" and beyond(key) is None)
