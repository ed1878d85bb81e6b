"""A table: rows in columns, found by their key, or by their key and a time.

Built once, then only read, by all tasks of a process: whoever has newer rows builds another table.
A key has one row, the last that was read; with versions it has several, each from its time on, and
who gives no time gets the newest.

Rejected: `pyarrow.Table.join` and Polars' `join`. Both make a hash table of all rows anew for each
batch, which takes longer than the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.arrays import Indices, Mask
from onyx.flow.columns.record_batch import Columns, Row, to_dicts
from onyx.flow.instants import looked_up
from onyx.joins.keys import NONE, KeyNumbers
from onyx.joins.versions import Validity, Versions


class Table(Mapping[Any, Row]):
    """Rows by key. As a mapping it has the newest row of each key: by a value, or by a tuple where
    a key has several parts. Nobody may change these rows."""

    def __init__(
        self, name: str, rows: Columns, key: Sequence[str], version_key: str | None = None
    ) -> None:
        """
        Raises:
            UserError: a row has no key, or no version, or one that cannot be looked up.
        """
        self.name = name
        self.title = f"table {name}"
        self.key = tuple(key)
        self.rows = rows
        columns = [self.column(each) for each in self.key]
        self._numbers = KeyNumbers(len(self.key))
        with self._naming(" and ".join(self.key)):
            numbers = self._numbers.add(columns)
        self._require_all(numbers >= 0, " and ".join(self.key))
        self._versions: Versions | None = None
        if version_key is None:
            self._last = np.empty(len(self._numbers), np.intp)
            self._last[numbers] = np.arange(len(rows))  # of one number the last assignment stays
        else:
            with self._naming(version_key):
                self._versions = Versions(numbers, self.column(version_key))
            self._require_all(self._versions.there, version_key)
            self._last = self._versions.newest(len(self._numbers))
        self._in_order = len(self._numbers) == len(rows)
        """Whether each row has a key of its own: then the number of the key is that of the row."""

    @property
    def columns(self) -> pa.RecordBatch:
        """All rows, in the order in which they were read."""
        return self.rows.record_batch

    def require_like(self, before: Table) -> None:
        """Raises UserError: as `require_alike`."""
        if len(self.rows) and len(before.rows):
            require_alike(self.columns.schema, before.columns.schema)

    @property
    def size(self) -> str:
        """How large it is, for people."""
        return f"{len(self.rows)} rows with {len(self)} keys, {self.rows.size_bytes} bytes"

    def find(self, keys: Sequence[pa.Array], at: pa.Array | None = None) -> Indices:
        """For each key the index of its row; -1: it has none.

        Args:
            keys: a column for each part of the key.
            at: with versions, the time at which a row is wanted; null: none is.

        Raises:
            UserError: the keys, or the times, are of another kind than those of the table.
        """
        numbers = self._numbers.find(keys)
        if at is not None:
            assert self._versions is not None, "validated: only a table with versions has times"
            return self._versions.find(numbers, at)
        if self._in_order:
            return numbers
        found = np.full(len(numbers), NONE, np.intp)
        there = np.flatnonzero(numbers != NONE)
        found[there] = self._last[numbers[there]]
        return found

    def valid(self) -> tuple[Indices, Validity | None]:
        """The rows that are found by their key, or at some time by their key, in no order; with
        versions, when each is."""
        return (self._last, None) if self._versions is None else self._versions.valid()

    def __getitem__(self, key: Any) -> Row:
        parts = tuple(map(looked_up, key)) if isinstance(key, tuple) else looked_up(key)
        return self._by_key[parts]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._by_key)

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._numbers)

    @cached_property
    def _by_key(self) -> dict[Any, Row]:
        """Made when somebody looks up a single key: many tasks never do."""
        chosen = np.sort(self._last)
        rows = to_dicts(self.rows.take(chosen))
        if len(self.key) == 1:
            (only,) = self.key
            return {looked_up(row[only]): row for row in rows}
        return {tuple(looked_up(row[each]) for each in self.key): row for row in rows}

    def column(self, name: str) -> pa.Array:
        """The values of all rows under a name."""
        if len(self.rows) and not self.rows.has(name):
            names = ", ".join(self.rows.record_batch.schema.names)
            raise UserError(f"table {self.name}: no row has {name!r}: they have {names}")
        return self.rows.column(name) if self.rows.has(name) else pa.nulls(0)

    @contextmanager
    def _naming(self, key: str) -> Iterator[None]:
        """Errors that say of which key they are."""
        try:
            yield
        except UserError as error:
            raise UserError(f"table {self.name}: key {key}: {error}") from error

    def _require_all(self, there: Mask, name: str) -> None:
        if there.all():
            return
        row = int(np.flatnonzero(~there)[0])
        segment = self.rows.row(row)
        is_nan = any(segment[each] != segment[each] for each in name.split(" and "))
        what = "NaN, which equals nothing," if is_nan else "nothing"
        raise UserError(
            f"table {self.name}: row {row} has {what} in {name} by which it could be found: "
            f"{segment}"
        )


def require_alike(here: pa.Schema, before: pa.Schema) -> None:
    """Whether whoever looks up the table that there was before can look up this one.

    Raises:
        UserError: a column is gone, or has another type.
    """
    for field in before:
        index = here.get_field_index(field.name)
        kind = here.field(index).type if index >= 0 else None
        if kind is None or (kind != field.type and pa.null() not in (kind, field.type)):
            now = "is gone" if kind is None else f"had type {field.type}, and has {kind}"
            raise UserError(f"column {field.name} {now}: a schema keeps the columns as they are")
