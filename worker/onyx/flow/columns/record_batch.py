"""Segments as columns: an Arrow record batch of which row i is segment i.

A batch holds its segments as a list of dicts or as `Columns`; what is done with either, its format
knows (`flow.batch`). `Columns` is immutable, so tasks of one process share it without copies.

Why a class around a record batch: iterating over a record batch gives columns where a list of
dicts gives segments, so code that was made for dicts would go wrong in silence. And `to_dicts` is
the only way from columns to dicts, so that a test can forbid it on a path of columns.

Types are few (`types`). A null is None in a dict, and a key that a dict lacks is null.

Rows become dicts in C, where the names of the columns allow it: `dict(zip(names, row))` for each
row takes four times as long as an object of a `msgspec.Struct` that has the names as fields, and
the dict of its fields. Rejected: source text with the names in it, given to `eval`, which saves a
tenth more.

Columns of list views become columns of lists (`without_views`). That is written here because
pyarrow's cast makes wrong lists of them: of a null, of a slice, and of values that do not lie in
the order of the rows. Text and bytes that are views, which pyarrow cannot take from, go with
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal
from functools import lru_cache
from itertools import starmap
from keyword import iskeyword
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from onyx.errors import UserError
from onyx.flow.arrays import Indices, Mask
from onyx.flow.columns.compute import pc
from onyx.flow.columns.moments import is_within
from onyx.flow.columns.types import in_one_zone, usual_schema
from onyx.flow.columns.values import MISMATCH, are_floats, python_values, to_array

Row = dict[str, Any]

_INT64_MAX = 2**63 - 1

_DAYS_MAX = 2**31 - 1

_DAY_MS = 86_400_000

_NO_VALUE = (ValueError, OverflowError)
"""What is raised for a value that Python does not have."""

_UNITS_US = {"s": 1_000_000, "ms": 1_000}
"""The units that are coarser than microseconds."""


class Columns:
    """A record batch of usual types (`types`), without metadata."""

    __slots__ = ("record_batch",)

    def __init__(self, record_batch: pa.RecordBatch) -> None:
        """`record_batch` has usual types already; `of` makes sure."""
        self.record_batch = record_batch

    @staticmethod
    def of(record_batch: pa.RecordBatch) -> Columns:
        """Any record batch, cast to the usual types.

        Raises:
            UserError: a column cannot be in a segment, or two have the same name.
        """
        schema = usual_schema(record_batch.schema)
        return Columns(record_batch if schema is None else _cast(record_batch, schema))

    def __len__(self) -> int:
        return int(self.record_batch.num_rows)

    @property
    def size_bytes(self) -> int:
        """The size of the values, about."""
        return int(self.record_batch.nbytes)

    def has(self, key: str) -> bool:
        """Whether there is a column of this name."""
        return bool(self.record_batch.schema.get_field_index(key) >= 0)

    def column(self, key: str) -> pa.Array:
        """The column of this name. Raises KeyError if there is none."""
        column: pa.Array = self.record_batch.column(key)
        return column

    def take(self, chosen: Indices) -> Columns:
        """The rows at these indices."""
        return Columns(self.record_batch.take(pa.array(chosen)))

    def filter(self, mask: Mask) -> Columns:
        """The rows where the mask is true."""
        return Columns(self.record_batch.filter(pa.array(mask)))

    def slice(self, first: int, last: int) -> Columns:
        """The rows from `first` to before `last`, without a copy."""
        return Columns(self.record_batch.slice(first, max(0, last - first)))

    def without(self, keys: Sequence[str]) -> Columns:
        """Without some columns; names that it lacks change nothing."""
        mine = [key for key in keys if self.has(key)]
        return Columns(self.record_batch.drop_columns(mine)) if mine else self

    def only(self, keys: Sequence[str]) -> Columns:
        """Only these columns, of which there may be none."""
        return self.without([key for key in self.record_batch.schema.names if key not in keys])

    def row(self, index: int) -> Row:
        """One segment: for messages and dead letters. Of a value that Python does not have (text
        that is not UTF-8, a moment of another age) it has the text."""
        return shown_dicts(self.slice(index, index + 1))[0]


def join(parts: Sequence[Columns]) -> Columns:
    """The rows of all, in order. A column that some lack is null there; types that differ become
    the wider one.

    Raises:
        UserError: a column has types that nothing holds both of.
    """
    if len(parts) == 1:
        return parts[0]
    batches = [part.record_batch for part in parts]
    first = batches[0].schema
    if all(batch.schema.equals(first) for batch in batches[1:]):
        return Columns(pa.concat_batches(batches))
    try:
        table = concatenated([pa.Table.from_batches([batch]) for batch in batches])
    except MISMATCH as error:
        raise UserError(
            f"batches of one task have columns whose types do not fit together: {error}; give the "
            "task a schema"
        ) from error
    return of_table(table)


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all, as of `join`. Raises what `MISMATCH` lists."""
    schemas = in_one_zone([table.schema for table in tables])
    _require_exact(tables)
    unsigned = {each.name for schema in schemas for each in schema if each.type == pa.uint64()}
    if unsigned:
        with contextlib.suppress(pa.ArrowInvalid):  # some are below 0
            return _together(tables, [_with_unsigned(schema, unsigned) for schema in schemas])
    return _together(tables, schemas)


def _require_exact(tables: Sequence[pa.Table]) -> None:
    """Decimals beside floats become floats, if each is one: pyarrow rounds in silence."""
    floats = {f.name for table in tables for f in table.schema if kinds.is_floating(f.type)}
    for table in tables if floats else ():
        for field in table.schema:
            beside = field.name in floats and kinds.is_decimal(field.type)
            if beside and not are_floats(table[field.name]):
                raise pa.ArrowTypeError(f"a decimal of column {field.name!r} is no float")


def _together(tables: Sequence[pa.Table], schemas: Sequence[pa.Schema]) -> pa.Table:
    alike = [table.cast(schema) for table, schema in zip(tables, schemas, strict=True)]
    return pa.concat_tables(alike, promote_options="permissive")


def _with_unsigned(schema: pa.Schema, names: Set[str]) -> pa.Schema:
    """Integers as uint64 where another table has it: pyarrow takes int64 for both."""
    return pa.schema(
        [
            each.with_type(pa.uint64())
            if each.name in names and kinds.is_integer(each.type)
            else each
            for each in schema
        ],
        schema.metadata,
    )


def of_table(table: pa.Table) -> Columns:
    """The rows of a table as one batch.

    Raises:
        UserError: as `Columns.of`, or a column has more text or bytes than one batch can hold.
    """
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise UserError(
            f"{table.num_rows} rows have more than 2 GiB of text or bytes in one column, which a "
            "record batch cannot hold: give the task smaller batches"
        )
    if not batches:
        return Columns.of(pa.RecordBatch.from_pylist([], schema=table.schema))
    return Columns.of(batches[0])


def to_dicts(columns: Columns) -> list[Row]:
    """The segments as dicts: this is the only function that makes them."""
    batch = columns.record_batch
    names = batch.schema.names
    if not names:
        return [{} for _ in range(batch.num_rows)]
    return dict_rows(names, [python_values(column) for column in batch.columns])


def shown_dicts(columns: Columns) -> list[Row]:
    """The segments as `to_dicts`, of rows that may be no segments: text where Python lacks the
    value."""
    try:
        return to_dicts(columns)
    except _NO_VALUE:
        batch = columns.record_batch
        return dict_rows(batch.schema.names, [_shown(column) for column in batch.columns])


def _shown(column: pa.Array) -> list[Any]:
    try:
        return python_values(column)
    except _NO_VALUE:
        if len(column) > 1:
            return [_shown(column.slice(index, 1))[0] for index in range(len(column))]
    if kinds.is_list(column.type):
        return [_shown(column.flatten())]
    if kinds.is_struct(column.type):
        names = [each.name for each in column.type.fields]
        fields = [_shown(each)[0] for each in column.flatten()]
        return [dict(zip(names, fields, strict=True))]
    if kinds.is_string(column.type):
        return [column.cast(pa.binary())[0].as_py().decode("utf-8", "replace")]
    return [column.to_string(indent=0, skip_new_lines=True)[1:-1]]


def from_dicts(
    segments: Sequence[Mapping[str, Any]], schema: pa.Schema | None = None
) -> tuple[Columns, Indices | None, list[tuple[int, Exception]]]:
    """Segments as columns: a key that a segment lacks is null.

    Args:
        schema: of usual types; None: a key has a type that holds all its values, or if there is
            none that of its first value.

    Returns:
        The columns, the indices of the segments that they hold (None: all), and for each other
        segment its index and why it does not fit.
    """
    names = keys_of(segments) if schema is None else schema.names
    types = [None] * len(names) if schema is None else schema.types
    try:
        extra = () if schema is None else set().union(*segments).difference(names)
        if not extra:
            arrays = [
                to_array([each.get(name) for each in segments], kind)
                for name, kind in zip(names, types, strict=True)
            ]
            return _joined(arrays, names, len(segments)), None, []
    except MISMATCH:
        pass
    return _fitting(segments, list(names), list(types), closed=schema is not None)


def _fitting(
    segments: Sequence[Mapping[str, Any]],
    names: list[str],
    types: list[pa.DataType | None],
    closed: bool,
) -> tuple[Columns, Indices, list[tuple[int, Exception]]]:
    """One by one: for a batch in which something does not fit."""
    failures: list[tuple[int, Exception]] = []
    known = dict(zip(names, types, strict=True))
    declared = frozenset(name for name, kind in known.items() if kind is not None)
    kept: list[int] = []
    for index, segment in enumerate(segments):
        problem = misfit(segment, known, closed)
        if problem is None and (why := _rounded(segment, known, declared)):
            problem = UserError(why)
        if problem is None:
            kept.append(index)
        else:
            failures.append((index, problem))
    names = list(known)
    arrays = [_fitted([segments[i].get(name) for i in kept], known[name]) for name in names]
    return _joined(arrays, names, len(kept)), np.array(kept, dtype=np.intp), failures


def _fitted(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """A column of values each of which fits by itself: a float and a Decimal have no type together,
    and pyarrow looks for that first."""
    try:
        return to_array(values, kind)
    except MISMATCH:
        return pa.concat_arrays([to_array([value], kind) for value in values])


def misfit(
    segment: Mapping[str, Any], known: dict[str, pa.DataType | None], closed: bool
) -> UserError | None:
    """Why columns do not hold a segment; None if they do.

    Args:
        known: the types of the columns, to which those of new keys are added.
        closed: there may be no new keys.
    """
    for key, value in segment.items():
        if closed and key not in known:
            return UserError(f"key {key!r} is not in the task's schema: add it, or leave it out")
        try:
            kind = to_array([value], known.get(key)).type
        except MISMATCH as error:
            return UserError(
                f"key {key!r} holds a {type(value).__name__} where the column is of type "
                f"{known[key]}: {error}"
            )
        if known.get(key) is None and not kinds.is_null(kind):
            known[key] = kind
    return None


def _rounded(segment: Mapping[str, Any], known: Mapping[str, Any], asked: Set[str]) -> str:
    """Why a number would be another float; empty if none is. One that a schema asks for may be."""
    for key, value in segment.items():
        beside = type(value) in (int, Decimal) and key not in asked and known[key] == pa.float64()
        if beside and Decimal(repr(float(value))) != value:
            return f"key {key!r} holds {value}, which is no float, beside floats"
    return ""


def _joined(arrays: list[pa.Array], names: Sequence[str], count: int) -> Columns:
    if not names:
        empty = pa.array([{}] * count, pa.struct([]))
        return Columns(pa.RecordBatch.from_struct_array(empty))
    return Columns.of(pa.RecordBatch.from_arrays(arrays, names=list(names)))


def keys_of(segments: Sequence[Mapping[str, Any]]) -> list[str]:
    """All keys of these segments, each once, in the order in which they come."""
    if not segments:
        return []
    first = segments[0].keys()
    if all(segment.keys() == first for segment in segments):
        return list(first)
    return list(dict.fromkeys(key for segment in segments for key in segment))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            columns.append(_cast_column(column, field.type))
        except MISMATCH as error:
            raise UserError(
                f"column {field.name!r} of type {column.type} cannot be in a segment: cast it to "
                f"{field.type} ({error})"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if kinds.is_run_end_encoded(column.type):
        column = _run_end_decoded(column)
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = without_views(column)
    if column.type.equals(kind):
        return column
    if _has_nanoseconds(column.type):
        column = _whole_microseconds(column)
    cut_off = pc.CastOptions(kind, allow_time_truncate=True)
    return pc.cast(_within_range(column), options=cut_off)


def _has_nanoseconds(kind: pa.DataType) -> bool:
    return bool((kinds.is_timestamp(kind) or kinds.is_duration(kind)) and kind.unit == "ns")


def _whole_microseconds(column: pa.Array) -> pa.Array:
    """Nanoseconds of the microsecond that is not later; Arrow cuts them towards 1970."""
    numbers = column.view(pa.int64())
    if is_within(numbers, 0, _INT64_MAX):
        return column
    nulls = None if not column.null_count else column.is_null().to_numpy(zero_copy_only=False)
    parts = numbers.fill_null(0).to_numpy()
    least = -(_INT64_MAX // 1_000) * 1_000  # no int64 is below it and whole
    floors = np.maximum(parts, least) // 1_000 * 1_000
    return pa.array(floors, pa.int64(), mask=nulls).view(column.type)


def _within_range(column: pa.Array) -> pa.Array:
    """Moments that microseconds, or days in 32 bits, do not hold as the first or last that they do,
    which are no dates of Python either: so they are refused row by row, and not by column."""
    kind = column.type
    if kinds.is_date64(kind):
        limit = _DAYS_MAX * _DAY_MS
    elif kinds.is_timestamp(kind) and kind.unit in _UNITS_US:
        limit = _INT64_MAX // _UNITS_US[kind.unit]
    else:
        return column
    numbers = column.view(pa.int64())
    if is_within(numbers, -limit, limit):
        return column
    least = pc.max_element_wise(numbers, -limit, skip_nulls=False)
    return pc.min_element_wise(least, limit, skip_nulls=False).view(kind)


def _run_end_decoded(column: pa.Array) -> pa.Array:
    """Each value as often as it counts. `pyarrow.compute.run_end_decode` makes wrong structs, and
    refuses dictionaries."""
    rows = np.arange(column.offset, column.offset + len(column))
    runs = np.searchsorted(column.run_ends.to_numpy(), rows, side="right")
    return column.values.take(pa.array(runs))


def dict_rows(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """A dict for each row, with the names as keys, in their order.

    Args:
        names: at least one.
        columns: the values of each name, all of one length.
    """
    make = _row_type(tuple(names))
    if make is None:
        return [dict(zip(names, row)) for row in zip(*columns, strict=True)]  # noqa: B905
    return list(map(msgspec.structs.asdict, map(make, *columns)))


def dicts_of(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """A dict for each row of values, with the names as keys, in their order.

    Raises:
        ValueError, TypeError: a row has not as many values as there are names.
    """
    make = _row_type(tuple(names))
    if make is None:
        return [dict(zip(names, row, strict=True)) for row in rows]
    return list(map(msgspec.structs.asdict, starmap(make, rows)))


class Alike(NamedTuple):
    """Dicts that have the same keys."""

    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """The values of each, by these names."""


def alike(dicts: Sequence[dict[str, Any]]) -> Alike | None:
    """The values of dicts that have the same keys, at least two; None: others."""
    names = tuple(dicts[0]) if dicts else ()
    if len(names) < 2 or set(map(len, dicts)) != {len(names)}:
        return None
    try:
        return Alike(names, list(map(itemgetter(*names), dicts)))
    except KeyError:
        return None


@lru_cache(maxsize=256)
def _row_type(names: tuple[str, ...]) -> type[msgspec.Struct] | None:
    """A type with these fields; None if there is none, or its fields would be more than fields."""
    if len(set(names)) < len(names):
        return None
    if any(not name.isidentifier() or iskeyword(name) or name[0] == "_" for name in names):
        return None
    return msgspec.defstruct("Row", names, gc=False)


def without_views(column: pa.Array) -> pa.Array:
    """The column with lists for all list views in it, however deep."""
    return _without(column) if _has_views(column.type) else column


@lru_cache(maxsize=256)
def _has_views(kind: pa.DataType) -> bool:
    if _is_view(kind) or kinds.is_string_view(kind) or kinds.is_binary_view(kind):
        return True
    if kinds.is_nested(kind):
        return any(_has_views(kind.field(at).type) for at in range(kind.num_fields))
    return False


def _is_view(kind: pa.DataType) -> bool:
    return bool(kinds.is_list_view(kind) or kinds.is_large_list_view(kind))


def _without(column: pa.Array) -> pa.Array:
    kind = column.type
    if not _has_views(kind):
        return column
    if kinds.is_string_view(kind) or kinds.is_binary_view(kind):
        return column.cast(pa.string() if kinds.is_string_view(kind) else pa.binary())
    if _is_view(kind):
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        sizes = np.where(valid, column.sizes.to_numpy(), 0).astype(np.int64)
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        where = np.repeat(column.offsets.to_numpy().astype(np.int64), sizes) + within
        return _lists(_without(column.values).take(pa.array(where)), sizes, column)
    if kinds.is_struct(kind):
        fields = [_without(each) for each in column.flatten()]
        names = [each.name for each in kind.fields]
        return pa.StructArray.from_arrays(fields, names, mask=column.is_null())
    if kinds.is_map(kind):
        offsets = column.offsets.to_numpy().astype(np.int64)
        held = slice(offsets[0], offsets[-1])
        parts = [_without(column.keys)[held], _without(column.items)[held]]
        pairs = pa.StructArray.from_arrays(parts, ["key", "value"])
        return _lists(pairs, np.diff(offsets), column)
    sizes = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    return _lists(_without(column.flatten()), sizes, column)


def _lists(values: pa.Array, sizes: NDArray[np.int64], like: pa.Array) -> pa.Array:
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=like.is_null())
