"""Columns of Parquet as those of a schema, which may name some of their fields only."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from onyx.flow.columns.record_batch import Columns, shown_dicts
from onyx.flow.columns.values import MISMATCH, cast_values, python_values
from onyx.spark_source.lines import misfit


def fitted(columns: Columns, schema: pa.Schema, path: str, first: int) -> pa.RecordBatch:
    """Rows of these columns; those that they lack are null.

    Args:
        path: where the rows are from, for messages.
        first: the index of the first row there.

    Raises:
        Misfit: a value does not fit.
    """
    arrays = []
    for field in schema:
        if not columns.has(field.name):
            arrays.append(pa.nulls(len(columns), field.type))
            continue
        column = columns.column(field.name)
        try:
            arrays.append(_fitted(column, field.type))
        except MISMATCH:
            row, reason = _first_misfit(column, field)
            raise misfit(path, first + row, reason) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_text(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """Each row as the JSON of an object, in the one column of a schema."""
    texts = [json_text(each) for each in shown_dicts(columns)]
    return pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=schema)


def json_text(value: Any) -> str | None:
    """Text itself, moments as text, and the JSON of anything else."""
    if value is None or isinstance(value, str):
        return value
    data = msgspec.json.encode(value, enc_hook=str)
    text: str = msgspec.json.decode(data) if data.startswith(b'"') else data.decode()
    return text


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    given = column.type
    if given.equals(kind):
        return column
    if kinds.is_string(kind) and not kinds.is_null(given):
        return pa.array(list(map(json_text, python_values(column))), kind)
    if kinds.is_struct(kind) and kinds.is_struct(given) and kind.num_fields:
        found = dict(zip((each.name for each in given.fields), column.flatten(), strict=True))
        fields = [
            _fitted(found[each.name], each.type)
            if each.name in found
            else pa.nulls(len(column), each.type)
            for each in kind.fields
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind.fields), mask=column.is_null())
    if kinds.is_list(kind) and kinds.is_list(given):
        items = _fitted(column.flatten(), kind.value_type)
        lengths = pc.fill_null(column.value_lengths(), 0)
        ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        return pa.ListArray.from_arrays(ends, items, type=kind, mask=column.is_null())
    return cast_values(column, kind)


def _first_misfit(column: pa.Array, field: pa.Field) -> tuple[int, str]:
    for row in range(len(column)):
        one = column.slice(row, 1)
        try:
            _fitted(one, field.type)
        except MISMATCH as error:
            value = type(one[0].as_py()).__name__
            where = f"where the column is of type {field.type}"
            return row, f"key {field.name!r} holds a {value} {where}: {error}"
    return 0, f"key {field.name!r} of type {column.type} cannot be {field.type}"
