"""A table: rows in columns, found by their key, or by their key and a time.

Built once, then only read, by all tasks of a process: whoever has newer rows builds another table.
A key has one row, the last that was read; with versions it has several, each from its time on, and
who gives no time gets the newest.

All versions lie in one sorted array of (number of the key, rank of the time), so that a batch is
looked up by one binary search. Times are compared exactly: versions lie in the type that their
column has, and a time that is asked for is moved down to the nearest one of that type
(`flow.comparisons`): between the two there is no version. So 11.25 finds the version of 11, and
2**53 + 1 is not the float 2.0**53.

Rejected: `pyarrow.Table.join` and Polars' `join`. Both make a hash table of all rows anew for each
batch, which takes longer than the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from onyx.errors import UserError
from onyx.flow.arrays import Indices, Mask
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns, Row, to_dicts
from onyx.flow.columns.values import python_values
from onyx.flow.comparisons import bound_of
from onyx.flow.instants import looked_up
from onyx.joins.keys import NONE, KeyNumbers, kind_of, plain
from onyx.keystate.extents import Number

_US_PER_MS, _MS_PER_DAY = 1_000, 86_400_000
_TIMES = ("null", "number", "date", "timestamp", "time", "duration")
_BEYOND = 10**80
Moments = NDArray[Any]
"""int64, uint64, float64, or Decimals: values of one of these have an order."""


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
        self._versions: RowVersions | None = None
        if version_key is None:
            self._last = np.empty(len(self._numbers), np.intp)
            self._last[numbers] = np.arange(len(rows))  # of one number the last assignment stays
        else:
            with self._naming(version_key):
                self._versions = RowVersions(numbers, self.column(version_key))
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


class RowVersions:
    """Versions of rows."""

    def __init__(self, numbers: Indices, times: pa.Array) -> None:
        """
        Args:
            numbers: the number of the key of each row.
            times: from when on the row is valid.

        Raises:
            UserError: the values have no order in time.
        """
        self._kind = _time_kind(times)
        self._axis = Axis(times)
        moments, self.there = self._axis.moments
        """Whether each row has a time."""
        self._moments = np.unique(moments)
        ranks = np.searchsorted(self._moments, moments) + 1
        places = self._places(numbers, ranks)
        # Of the same key and time the last row is found: the sort is stable.
        self._order = np.argsort(places, kind="stable")
        self._sorted = places[self._order]
        self._owners = numbers[self._order]

    def find(self, numbers: Indices, times: pa.Array) -> Indices:
        """For each number the row that is valid at the time; -1: there is none yet, or no time.

        Raises:
            UserError: the times are of another kind.
        """
        kind = _time_kind(times)
        if "null" not in (kind, self._kind) and kind != self._kind:
            raise UserError(
                f"the time is of kind {kind} and the versions have kind {self._kind}: make them "
                "alike where one of them is read"
            )
        moments, there = self._axis.below(times)
        rows = np.flatnonzero((numbers != NONE) & there)
        ranks = np.searchsorted(self._moments, moments[rows], side="right")
        places = self._places(numbers[rows], ranks)
        # In order, because neighbours in a large array are found twice as fast.
        ordered = np.argsort(places)
        before = np.empty(len(places), np.intp)
        before[ordered] = np.searchsorted(self._sorted, places[ordered], side="right") - 1
        found = np.full(len(numbers), NONE, np.intp)
        if len(self._sorted):
            first = self._places(numbers[rows], np.intp(0))
            valid = (before >= 0) & (self._sorted[before] >= first)
            found[rows[valid]] = self._order[before[valid]]
        return found

    def newest(self, many: int) -> Indices:
        """The newest row of each number."""
        found = np.empty(many, np.intp)
        found[self._owners] = self._order  # of one number the last assignment stays
        return found

    def valid(self) -> tuple[Indices, Validity]:
        """The rows that are found at some time, in no order, and when each is."""
        kept = np.flatnonzero(np.diff(self._sorted, append=NONE))
        firsts = self._moments[self._sorted[kept] % (len(self._moments) + 1) - 1]
        newest = np.diff(self._owners[kept], append=NONE) != 0
        return self._order[kept], Validity(self._kind, firsts, np.append(firsts[1:], 0), newest)

    def _places(self, numbers: Indices, ranks: Indices | np.intp) -> Indices:
        return numbers * (len(self._moments) + 1) + ranks


class Validity(msgspec.Struct, frozen=True):
    """When versions are valid: each from its time on, until before the next of its key."""

    kind: str
    """What the times are (`keys.kind_of`)."""
    firsts: Moments
    nexts: Moments
    """The times of the next ones."""
    newest: Mask
    """Which have no next one."""

    def take(self, chosen: Indices) -> Validity:
        """Some of them."""
        return Validity(self.kind, self.firsts[chosen], self.nexts[chosen], self.newest[chosen])

    def bounds(self, index: int) -> tuple[Number, Number]:
        """The first and the last moment of one: numbers as they are, times in milliseconds since
        the epoch."""
        lower = self._moment(self.firsts[index])
        if self.newest[index]:
            return lower, math.inf
        following = self._moment(self.nexts[index])
        if self.kind == "number" and isinstance(following, float):
            return lower, math.nextafter(following, -math.inf)
        return lower, following - (1 if isinstance(following, int) else 1 / _US_PER_MS)

    def _moment(self, moment: Any) -> Number:
        if self.kind == "number":
            return int(moment) if moment == moment // 1 else float(moment)
        time = int(moment)
        if self.kind == "date":
            return time * _MS_PER_DAY
        return time / _US_PER_MS if time % _US_PER_MS else time // _US_PER_MS


def _time_kind(times: pa.Array) -> str:
    kind = kind_of(times.type)
    if kind not in _TIMES:
        raise UserError(f"values of kind {kind} are no times: use numbers or times")
    return kind


class Axis:
    """The moments of a column of times, and where others are among them."""

    def __init__(self, times: pa.Array) -> None:
        """Raises UserError: values of this type are no keys, so no times."""
        self._kind = times.type
        self.moments: tuple[Moments, Mask] = _moments(times)
        """The moment of each row; and which rows have one, which null and NaN are not."""

    def below(self, times: pa.Array) -> tuple[Moments, Mask]:
        """For each time the last moment that versions could have and that is not later; and which
        rows have one."""
        if _form(times.type) == _form(self._kind) or not _is_number(times.type):
            return _moments(times)
        if kinds.is_floating(times.type):
            times = _without_nan(times)
        encoded = times.dictionary_encode()
        values = map(_finite, python_values(encoded.dictionary))
        bounds = [bound_of(each, self._kind) for each in values]
        found = [None if bound is None else bound.below for bound in bounds]
        known = pa.array([each is not None for each in found], pa.bool_())
        there = known.take(encoded.indices).fill_null(False).to_numpy(zero_copy_only=False)
        moments = np.array([0 if each is None else each for each in found], _form(self._kind))
        if not len(moments):
            return np.zeros(len(times), _form(self._kind)), there
        return moments[encoded.indices.fill_null(0).to_numpy()], there


def _form(kind: pa.DataType) -> str:
    """The type of array that moments of this type have."""
    if kinds.is_floating(kind):
        return "f8"
    if kinds.is_decimal(kind):
        return "O"
    return "u8" if kinds.is_uint64(kind) else "i8"


def _is_number(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind))


def _moments(times: pa.Array) -> tuple[Moments, Mask]:
    form = _form(times.type)
    if form == "O":
        values = python_values(times)
        there = np.array([each is not None for each in values], np.bool_)
        moments = np.array([0 if each is None else each for each in values], object)
        return moments, there
    if form == "f8":
        times = _without_nan(times)
    elif form == "i8":
        times = plain(times)
    there = times.is_valid().to_numpy(zero_copy_only=False)
    if kinds.is_null(times.type):
        return np.zeros(len(times), form), there
    return times.fill_null(0).to_numpy().astype(form, copy=False), there


def _without_nan(times: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(times), None, times).cast(pa.float64())


def _finite(value: Any) -> Any:
    """A number that is beyond all others where the value is infinite."""
    return int(math.copysign(1, value)) * _BEYOND if abs(value) == math.inf else value
