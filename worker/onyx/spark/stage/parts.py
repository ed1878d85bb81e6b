"""Parquet parts as one DataFrame, also when their schemas differ.

Parts are written from segments as they come, so one part may have integers where another has
floats, lack a column, or have one that is always null. Spark reads files of one schema; so the
parts are read by groups of equal schema, cast to the schema that all fit, and united.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from onyx.errors import UserFunctionError

_SPARK_TYPES = {
    pa.null(): pa.string(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def read_parts(session: Any, paths: Sequence[str], ddl: str | None) -> Any:
    """A DataFrame of all rows of `paths`, in no order.

    Raises:
        UserFunctionError: there are no parts and no schema, or the types of a column do not fit.
    """
    groups: dict[pa.Schema, list[str]] = {}
    for path in paths:
        groups.setdefault(pq.read_schema(path).remove_metadata(), []).append(path)
    wanted = _wanted(session, list(groups), ddl)
    if not groups:
        return session.createDataFrame([], wanted)
    frames = [_cast(session.read.parquet(*group), wanted) for group in groups.values()]
    united = frames[0]
    for frame in frames[1:]:
        united = united.unionByName(frame)
    return united


def _wanted(session: Any, schemas: list[pa.Schema], ddl: str | None) -> Any:
    if ddl is not None:
        return session.createDataFrame([], ddl).schema
    if not schemas:
        raise UserFunctionError("there are no parts to read; give the task a `schema`")
    try:
        united = pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UserFunctionError(
            f"the types of a column differ between parts: {error}; give the task a `schema`"
        ) from error
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(spark_schema(united))


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in types that Spark has."""
    return pa.schema([_typed(field) for field in schema])


def _typed(field: pa.Field) -> pa.Field:
    """With a type that Spark has."""
    return field.with_type(_spark_type(field.type))


def _spark_type(kind: pa.DataType) -> pa.DataType:
    """Spark reads unsigned numbers as wider ones. A column that was null in every part is text,
    since Spark casts nothing to its void type."""
    if kinds.is_list(kind):
        return pa.list_(_spark_type(kind.value_type))
    if kinds.is_struct(kind):
        return pa.struct([_typed(each) for each in kind.fields])
    return _SPARK_TYPES.get(kind, kind)


def _cast(frame: Any, wanted: Any) -> Any:
    if frame.schema == wanted:
        return frame
    from pyspark.sql import functions

    present = set(frame.columns)
    return frame.select(
        *(
            (functions.col(f"`{field.name}`") if field.name in present else functions.lit(None))
            .cast(field.dataType)
            .alias(field.name)
            for field in wanted.fields
        )
    )
