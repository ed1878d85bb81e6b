"""The schema of a task (`schema` in its catalog entry) as an Arrow schema, and rows that fit it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.types import UTC_NAME
from onyx.flow.columns.values import MISMATCH, cast_values
from onyx.model.column_types import ColumnType, parse_type
from onyx.model.job import CatalogEntry

_SIMPLE: Mapping[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", tz=UTC_NAME),
    "duration": pa.duration("us"),
}


def arrow_schema(entry: CatalogEntry) -> pa.Schema | None:
    """The Arrow schema of a task, in the order of the manifest; None if it has none."""
    if entry.schema is None:
        return None
    return pa.schema([(name, _arrow(parse_type(text))) for name, text in entry.schema.items()])


def _arrow(kind: ColumnType) -> pa.DataType:
    if kind.name == "decimal":
        return pa.decimal128(*kind.numbers)
    if kind.name == "list":
        return pa.list_(_arrow(kind.fields[0][1]))
    if kind.name == "struct":
        return pa.struct([(name, _arrow(each)) for name, each in kind.fields])
    return _SIMPLE[kind.name]


def fitted(columns: Columns, schema: pa.Schema | None) -> Columns | None:
    """Columns cast to the schema, if there is one, with nulls for those that they lack; None if
    that fails."""
    batch = columns.record_batch
    if schema is None or batch.schema.equals(schema):
        return columns
    if not set(batch.schema.names) <= set(schema.names):
        return None
    try:
        arrays = [
            cast_values(batch.column(field.name), field.type)
            if columns.has(field.name)
            else pa.nulls(len(columns), field.type)
            for field in schema
        ]
    except MISMATCH:
        return None
    return Columns(pa.RecordBatch.from_arrays(arrays, schema=schema))
