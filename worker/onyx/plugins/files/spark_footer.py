"""What the footer of a Parquet file that Spark has written says beyond Parquet's own types.

Parquet has no durations, and Spark writes them as plain numbers of microseconds. It has no types of
months at all. What Spark means stands as JSON in the footer, with the metadata of each column; a
*note* of the type that a column had before it came to Spark is there (`spark.types`). So what reads
such a file gets what Spark had, whoever has written it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as kinds

from onyx.base.structs import UNREADABLE
from onyx.errors import UserError
from onyx.flow.columns.compute import pc

ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
"""Spark's own key."""
NOTE = "onyx.type"
_DURATIONS = ("interval day", "interval hour", "interval minute", "interval second")
_NONE_OF_OURS = {
    "interval year": "intervals of months: cast it to INT",
    "interval month": "intervals of months: cast it to INT",
    "interval": "calendar intervals: cast it to STRING",
    "variant": "values of any type: take to_json of it",
    "geometry": "geometries: take ST_AsBinary of it",
    "geography": "geographies: take ST_AsBinary of it",
}


def note_of(kind: pa.DataType, of_spark: Any) -> dict[str, Any]:
    """Metadata of a column of Spark whose values had this type.

    Args:
        of_spark: the type that it has in Spark, as JSON values; of another one nothing is noted.
    """
    data = pa.schema([("v", kind)]).serialize().to_pybytes()
    return {NOTE: {"spark": msgspec.json.encode(of_spark).decode(),
                   "arrow": base64.b64encode(data).decode()}}  # fmt: skip


def unreadable(fields: Any) -> str:
    """Which column of a schema of Spark, as its JSON values, no segment can hold, and what to do;
    empty if all can be read."""
    for field in fields["fields"]:
        what = _none_of_ours(field["type"])
        if what:
            return f"column {field['name']!r} holds {what}"
    return ""


def _none_of_ours(kind: Any) -> str:
    if isinstance(kind, str):
        name = kind.partition("(")[0].partition(" to ")[0]
        return _NONE_OF_OURS.get(name, "")
    within = [kind.get(each) for each in ("elementType", "keyType", "valueType", "sqlType")]
    within += [each["type"] for each in kind.get("fields", ())]
    return next((what for each in within if each is not None and (what := _none_of_ours(each))), "")


class SparkTypes(msgspec.Struct, frozen=True):
    """The types that columns of a file have had."""

    durations: Mapping[str, pa.DataType]
    """Types of columns with durations."""
    noted: Mapping[str, pa.DataType]
    """Types that columns had before they came to Spark."""

    def schema(self, of_file: pa.Schema) -> pa.Schema:
        """The schema of the file in these types."""
        found = {field.name: field.type for field in of_file} | {**self.durations, **self.noted}
        return pa.schema([(name, found[name]) for name in of_file.names])

    def restored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the file in these types."""
        columns = list(batch.columns)
        for at, name in enumerate(batch.schema.names):
            if name in self.durations:
                columns[at] = pc.cast(columns[at], self.durations[name])
            if name in self.noted:
                columns[at] = _as_noted(columns[at], self.noted[name])
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def spark_types(schema: pa.Schema) -> SparkTypes | None:
    """What is to be restored in a file of this schema; None if nothing is.

    Raises:
        UserError: no segment can hold a column.
    """
    said = (schema.metadata or {}).get(ROW_METADATA)
    if said is None:
        return None
    try:
        found = msgspec.json.decode(said)
        fields = [each for each in found["fields"] if each["name"] in schema.names]
        wrong = unreadable({"fields": fields})
        durations = {
            each["name"]: kind
            for each in fields
            if (kind := _with_durations(each["type"], schema.field(each["name"]).type)) is not None
        }
        noted = {each["name"]: kind for each in fields if (kind := _noted(each)) is not None}
    except (*UNREADABLE, KeyError, TypeError, AttributeError, pa.ArrowException, ValueError):
        return None  # it is not Spark's
    if wrong:
        raise UserError(wrong)
    return SparkTypes(durations, noted) if durations or noted else None


def _with_durations(kind: Any, given: pa.DataType) -> pa.DataType | None:
    """The type of a column with durations, at any depth; None if it has none."""
    if isinstance(kind, str):
        is_number = kind.startswith(_DURATIONS) and kinds.is_int64(given)
        return pa.duration("us") if is_number else None
    if kinds.is_list(given) and kind["type"] == "array":
        inner = _with_durations(kind["elementType"], given.value_type)
        return None if inner is None else pa.list_(inner)
    if kinds.is_map(given) and kind["type"] == "map":
        key = _with_durations(kind["keyType"], given.key_type)
        value = _with_durations(kind["valueType"], given.item_type)
        if key is None and value is None:
            return None
        return pa.map_(key or given.key_type, value or given.item_type)
    if kinds.is_struct(given) and kind["type"] == "struct":
        types = {each["name"]: each["type"] for each in kind["fields"]}
        found = [_with_durations(types.get(each.name, ""), each.type) for each in given.fields]
        if not any(found):
            return None
        return pa.struct(
            [(f.name, kind or f.type) for f, kind in zip(given.fields, found, strict=True)]
        )
    return None


def _noted(field: Any) -> pa.DataType | None:
    note = field["metadata"].get(NOTE)
    if note is None:
        return None
    try:
        of_spark = msgspec.json.decode(note["spark"])
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(note["arrow"])))
    except UNREADABLE:
        return None
    return schema.field(0).type if of_spark == field["type"] else None


def _as_noted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the type that it had, if its values are such: Spark keeps a note in a union."""
    try:
        return _cast(column, kind)
    except pa.ArrowException:
        return column


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Casts as Arrow does, which makes no null of what is null everywhere."""
    if kinds.is_null(kind):
        if column.null_count < len(column):
            raise pa.ArrowInvalid("not all are null")
        return pa.nulls(len(column))
    if kinds.is_list(kind):
        column = pa.concat_arrays([column])  # of which offsets begin at 0
        values = _cast(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null())
    if kinds.is_struct(kind):
        fields = [_cast(pc.struct_field(column, each.name), each.type) for each in kind.fields]
        return pa.StructArray.from_arrays(fields, fields=list(kind.fields), mask=column.is_null())
    return pc.cast(column, kind)
