"""Parquet parts as one DataFrame, also when their schemas differ.

Parts are written from segments as they come, so one part may have integers where another has
floats, lack a column, or have one that is always null. Spark reads files of one schema; so the
parts are read by groups of equal schema, cast to the schema that all fit, and united. Fields meet
by their names: Spark itself casts a struct by the positions of its fields, which are in the order
of the first segment of each part. Objects of a store are read by executors too (`spark.objects`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import FailsAgain
from onyx.flow.columns.types import in_one_zone
from onyx.spark.objects.reading import read_files, schemas_of

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
        FailsAgain: there are no parts and no schema, or the types of a column do not fit.
        UserError, Unavailable: an object store refuses, or cannot be reached.
    """
    groups: dict[pa.Schema, list[str]] = {}
    for path, schema in zip(paths, schemas_of(paths), strict=True):
        groups.setdefault(schema.remove_metadata(), []).append(path)
    wanted = _wanted(session, list(groups), ddl)
    if not groups:
        return session.createDataFrame([], wanted)
    frames = [_cast(_read(session, group, schema), wanted) for schema, group in groups.items()]
    united = frames[0]
    for frame in frames[1:]:
        united = united.unionByName(frame)
    return united


def _read(session: Any, paths: Sequence[str], schema: pa.Schema) -> Any:
    """Files of one schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return read_files(session, paths, from_arrow_schema(spark_schema(schema)), infer=True)


def _wanted(session: Any, schemas: list[pa.Schema], ddl: str | None) -> Any:
    if ddl is not None:
        return session.createDataFrame([], ddl).schema
    if not schemas:
        raise FailsAgain("there are no parts to read; give the task a `schema`")
    try:
        united = pa.unify_schemas(in_one_zone(schemas), promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise FailsAgain(
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

    given = {field.name: field.dataType for field in frame.schema.fields}
    return frame.select(
        *(
            (
                _fitted(frame[_quoted(field.name)], given[field.name], field.dataType)
                if field.name in given
                else functions.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in wanted.fields
        )
    )


def _fitted(column: Any, given: Any, wanted: Any) -> Any:
    """A column as another type; fields of structs that it lacks are null, and others are left."""
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(given, StructType) and isinstance(wanted, StructType):
        mine = {field.name: field.dataType for field in given.fields}
        fields = [
            (
                _fitted(column.getField(field.name), mine[field.name], field.dataType)
                if field.name in mine
                else functions.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in wanted.fields
        ]
        return functions.when(column.isNotNull(), functions.struct(*fields))
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        of = given.elementType, wanted.elementType
        return functions.transform(column, lambda each: _fitted(each, *of))
    return column.cast(wanted)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
