"""A table as a user's function has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from onyx.flow.arrays import Indices
from onyx.flow.columns.record_batch import Row
from onyx.joins.keys import NONE
from onyx.joins.table import Table


class Lookup(Mapping[Any, Row]):
    """The rows of a table by their key: a value, or a tuple where a key has several parts. Of
    several versions it has the newest. When the table is read again, it has the new rows.

    A row is shared by all who look it up: copy it to change it.
    """

    def __init__(self, table: Callable[[], Table]) -> None:
        """`table`: the table as it is now."""
        self._table = table

    def __getitem__(self, key: Any) -> Row:
        return self._table()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table())

    def __len__(self) -> int:
        return len(self._table())

    @property
    def columns(self) -> pa.RecordBatch:
        """All rows as columns, in the order in which they were read."""
        return self._table().columns

    def rows_of(self, *keys: pa.Array, at: pa.Array | None = None) -> pa.RecordBatch:
        """The row for each of these keys, as columns; all of it is null where there is none.

        Args:
            keys: a column for each part of the key.
            at: with versions, the times at which the rows are wanted.
        """
        table = self._table()
        found: Indices = table.find(keys, at)
        return table.columns.take(pa.array(found, mask=found == NONE))


def lookups(tables: Mapping[str, Callable[[], Table]], names: Sequence[str]) -> list[Lookup]:
    """Some tables as functions have them."""
    return [Lookup(tables[name]) for name in names]
