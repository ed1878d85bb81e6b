"""Segments get what a table has under their key: one batch at a time, in its own format.

A key of a table has one row, so a segment becomes one segment or none. Dicts are looked up as
columns are, by a column of their keys, so both formats agree, also in the values that segments get
beside their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import field

from onyx.errors import UserError
from onyx.flow.arrays import Indices, Mask
from onyx.flow.batch import Segments, format_of
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns, Row, to_dicts
from onyx.flow.columns.values import MISMATCH, to_array
from onyx.flow.segment import JoinRefusal, Segment, SegmentFailure
from onyx.joins.keys import NONE


class Joined(NamedTuple):
    """What a join makes of a batch."""

    segments: Segments
    kept: Indices | None
    """The indices in the batch of the segments that these come of; None: all."""
    failures: list[SegmentFailure]
    missed: int
    """How many segments have found no row."""


class RowSource(Protocol):
    """What segments get values of: a table, or what another task keeps (`kept`)."""

    @property
    def title(self) -> str:
        """What it is, with its name, for people."""
        ...

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that are its key, as far as they are in it."""
        ...

    @property
    def columns(self) -> pa.RecordBatch:
        """All rows."""
        ...

    def find(self, keys: Sequence[pa.Array], at: pa.Array | None = None) -> Indices:
        """For each key the index of its row; -1: it has none. Raises UserError: it cannot be looked
        up."""
        ...


class Enrichment(msgspec.Struct, frozen=True):
    """The join of a task with a table, or with what another task keeps."""

    table: Callable[[], RowSource]
    """The rows as they are now."""
    key: tuple[str, ...]
    """Keys of a segment whose values are looked up."""
    inner: bool = False
    """Whether a segment that finds nothing ends here."""
    columns: tuple[str, ...] | None = None
    """What segments get of a row; None: all but its key."""
    under: str | None = None
    """Key under which they get it, as a segment within the segment; None: beside their own."""
    at: str | None = None
    """Key of a segment that holds the time at which the row is wanted."""
    default: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Values of a row for segments that find none."""

    def of(self, segments: Segments) -> Joined:
        """The segments with what the table has for them.

        A segment fails that the table cannot be asked for, or that has a value of its own where it
        would get one.
        """
        table = self.table()
        rows = self._given(table)
        found, failures = self._found(table, segments)
        names = rows.schema.names if self.under is None else [self.under]
        failed = {index for index, _ in failures}
        for index, name in occupied(segments, names).items():
            if index not in failed:
                failures.append((index, JoinRefusal(OCCUPIED.format(name, table.title))))
        failures.sort(key=itemgetter(0))
        kept = np.delete(np.arange(len(segments)), [index for index, _ in failures])
        missing = found[kept] == NONE
        missed = int(np.count_nonzero(missing))
        if self.inner and missed:
            kept = kept[~missing]
        if len(kept) == len(segments):
            return Joined(self._attached(segments, rows, found), None, failures, missed)
        some = format_of(segments).take(segments, kept)
        return Joined(self._attached(some, rows, found[kept]), kept, failures, missed)

    def check(self, table: RowSource) -> None:
        """Whether the table has what segments are to get.

        Raises:
            UserError: it has not.
        """
        known = table.columns.schema.names
        for name in (*(self.columns or ()), *self.default) if table.columns.num_rows else ():
            if name not in known:
                raise UserError(f"{table.title} has no column {name!r}: it has {', '.join(known)}")
        for name, value in self.default.items():
            kind = table.columns.column(name).type if name in known else pa.null()
            try:
                default_of(value, kind)
            except MISMATCH as error:
                raise UserError(
                    f"join with {table.title}: default.{name} is {value!r}, and the column "
                    f"has type {kind}: {error}"
                ) from error

    def _attached(self, segments: Segments, rows: pa.RecordBatch, found: Indices) -> Segments:
        return attached(segments, rows, found, self.under, self.default)

    def _given(self, table: RowSource) -> pa.RecordBatch:
        """What segments may get, of all rows."""
        rows, names = table.columns, self.columns
        if names is None:
            own = [name for name in rows.schema.names if name not in table.key]
            names = tuple(dict.fromkeys([*own, *self.default]))
        if set(names) <= set(rows.schema.names):
            return rows.select(list(names))
        # A table without rows may not know its columns.
        arrays = [
            rows.column(name) if name in rows.schema.names else pa.nulls(len(rows))
            for name in names
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(names))

    def _found(self, table: RowSource, segments: Segments) -> tuple[Indices, list[SegmentFailure]]:
        """The row of each segment, and the segments that cannot be looked up: by halves, because
        values may be of one kind by themselves and in no column together."""
        try:
            return self._find(table, segments), []
        except JoinRefusal as error:
            if len(segments) <= 1:
                return np.full(len(segments), NONE, np.intp), [(0, error)]
        form, half = format_of(segments), len(segments) // 2
        found, failures = self._found(table, form.slice(segments, 0, half))
        behind, more = self._found(table, form.slice(segments, half, len(segments)))
        failures += [(half + index, error) for index, error in more]
        return np.concatenate([found, behind]), failures

    def _find(self, table: RowSource, segments: Segments) -> Indices:
        try:
            keys = [values_of(segments, key) for key in self.key]
            at = None if self.at is None else values_of(segments, self.at)
            return table.find(keys, at)
        except (UserError, *MISMATCH) as error:
            raise JoinRefusal(f"join with {table.title}: {error}") from error


OCCUPIED = (
    "the segment has a value under {0!r}, where it would get that of {1}: name another place "
    "with `as`, choose `columns` of a table, or remove the value in a task before"
)


def values_of(segments: Segments, key: str) -> pa.Array:
    """The values of segments under a key, as a column; null where they have none.

    Raises:
        MISMATCH: no column holds all of them.
    """
    return format_of(segments).choose(_of_dicts, _of_columns)(segments, key)


def _of_dicts(segments: list[Segment], key: str) -> pa.Array:
    return to_array([each.get(key) for each in segments])


def _of_columns(columns: Columns, key: str) -> pa.Array:
    return columns.column(key) if columns.has(key) else pa.nulls(len(columns))


def occupied(segments: Segments, names: Sequence[str]) -> dict[int, str]:
    """The segments that have a value of their own under one of these names, by index, each with the
    last such name."""
    return format_of(segments).choose(_occupied_dicts, _occupied_rows)(segments, names)


def _occupied_dicts(segments: list[Segment], names: Sequence[str]) -> dict[int, str]:
    mine = set(names)
    return {
        index: name
        for index, segment in enumerate(segments)
        if not mine.isdisjoint(segment)
        for name in names
        if segment.get(name) is not None
    }


def _occupied_rows(columns: Columns, names: Sequence[str]) -> dict[int, str]:
    return {
        index: name
        for name in names
        if columns.has(name)
        for index in np.flatnonzero(
            columns.column(name).is_valid().to_numpy(zero_copy_only=False)
        ).tolist()
    }


def attached(
    segments: Segments,
    rows: pa.RecordBatch,
    found: Indices,
    under: str | None,
    default: Mapping[str, Any],
) -> Segments:
    """Segments with the row of each beside their own values, or under a key. They have nothing of
    their own there.

    Args:
        found: for each segment the index of its row; -1: it has none.
        default: values of a row for segments that have none. All else is null there.
    """
    if under is None and not rows.num_columns:
        return segments
    missing = found == NONE
    taken = rows.take(pa.array(found, mask=missing))
    if default and missing.any():
        taken = _with_defaults(taken, missing, default)
    there = np.ones(len(found), np.bool_) if default else ~missing
    return format_of(segments).choose(_dicts_with, _columns_with)(segments, taken, there, under)


def default_of(value: Any, column: pa.DataType) -> pa.Scalar:
    """A default as a column of this type has it.

    Raises:
        MISMATCH: the column cannot have it.
    """
    return pa.scalar(value) if column == pa.null() else pa.scalar(value, column)


def _with_defaults(
    taken: pa.RecordBatch, missing: Mask, default: Mapping[str, Any]
) -> pa.RecordBatch:
    arrays = dict(zip(taken.schema.names, taken.columns, strict=True))
    for name, value in default.items():
        scalar = default_of(value, arrays[name].type)
        arrays[name] = pc.if_else(pa.array(missing), scalar, arrays[name].cast(scalar.type))
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _dicts_with(
    segments: list[Segment], taken: pa.RecordBatch, there: Mask, under: str | None
) -> Segments:
    rows = to_dicts(Columns(taken)) if taken.num_columns else [{} for _ in segments]
    if under is None:
        return [{**mine, **row} for mine, row in zip(segments, rows, strict=True)]
    return [
        {**mine, under: row if is_there else None}
        for mine, row, is_there in zip(segments, rows, there.tolist(), strict=True)
    ]


def _columns_with(
    columns: Columns, taken: pa.RecordBatch, there: Mask, under: str | None
) -> Segments:
    names, arrays = list(taken.schema.names), list(taken.columns)
    if under is not None:
        fields = [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)]
        if fields:
            arrays = [pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(~there))]
        else:
            nothing: list[Row | None] = [{} if each else None for each in there.tolist()]
            arrays = [pa.array(nothing, pa.struct([]))]
        names = [under]
    mine = columns.without(names).record_batch
    return Columns(
        pa.RecordBatch.from_arrays([*mine.columns, *arrays], names=[*mine.schema.names, *names])
    )
