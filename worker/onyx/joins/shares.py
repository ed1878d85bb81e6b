"""The parts of a table, one for each peer of a task or each bucket of a query: the rows that
segments of its groups look up.

Segments go to peers and buckets by the hash of their group, and rows by the same hash of the same
values, so a segment and its row meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.arrays import Indices
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.getters import key_getter
from onyx.flow.groups.grouping import Grouping
from onyx.model.job import CatalogEntry


class Dealing:
    """Deals the rows of a table to its parts."""

    def __init__(self, table: CatalogEntry, task: CatalogEntry, parts: int) -> None:
        """`task`: looks the table up, and is grouped by the keys that it looks up."""
        assert task.join is not None, "validated: only a join looks up a partitioned table"
        getter = key_getter(task, _no_function)
        assert getter is not None, "validated: the task is grouped"
        self._grouping = Grouping(getter, task)
        self._table = table.name
        self._keys = dict(zip(names_of(table.key), task.join.keys, strict=True))
        self.parts = parts

    def part(self, number: int, rows: Columns) -> Columns:
        """Rows of the table that are of one part. Raises as `parts_of`."""
        if not all(map(rows.has, self._keys)):
            return rows  # `Table` says which key is missing
        mine = np.flatnonzero(self.parts_of(rows) == number)
        return rows if len(mine) == len(rows) else rows.take(mine)

    def parts_of(self, rows: Columns) -> Indices:
        """The part of each row of the table.

        Raises:
            UserError: a key is none that segments can be grouped by.
        """
        arrays = [rows.column(key) for key in self._keys]
        keys = Columns(pa.RecordBatch.from_arrays(arrays, names=list(self._keys.values())))
        try:
            return self._grouping.slots_of(keys, self.parts)
        except UserError as error:
            raise UserError(f"table {self._table}, which is partitioned: {error}") from error


def names_of(key: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of a key that is one or several."""
    return (key,) if isinstance(key, str) else tuple(key or ())


def _no_function(name: str) -> Callable[..., Any]:
    raise AssertionError(f"validated: groups of {name} are of keys")
