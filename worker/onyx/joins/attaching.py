"""Values that segments get beside their own, in either format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onyx.flow.arrays import Indices, Mask
from onyx.flow.batch import Segments, format_of
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns, Row, to_dicts
from onyx.flow.columns.values import to_array
from onyx.flow.segment import Segment
from onyx.joins.keys import NONE


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
