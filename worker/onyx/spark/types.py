"""Which types columns of segments have in Spark, and how a value of one becomes one of another.

| a column of | is in Spark | and comes back |
|---|---|---|
| uint8 to uint64 | SMALLINT, INT, BIGINT, DECIMAL(20, 0) | by a note |
| decimal128, decimal256 | DECIMAL, of at most 38 digits | by a note |
| times in any zone, or in none | TIMESTAMP, which has no zone | by a note |
| null | STRING | by a note |
| duration, time | INTERVAL DAY TO SECOND, TIME(6) | itself |
| all others | the same | itself |

A *note* is metadata of the column, which Spark keeps as long as a column is passed on as it is. It
stands in the footer of what Spark writes, and so whoever reads that finds it there
(`plugins.files.spark_footer`). A column that was computed has none.

Everything is exact or an error. Spark's own casts take a number for seconds, cut fractions off, and
round whole numbers to floats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from onyx.errors import FailsAgain, UserError
from onyx.flow.columns.types import UTC_NAME, usual_schema, usual_type
from onyx.plugins.files.spark_footer import note_of

DIGITS_MAX = 38
"""Digits of a decimal of Spark."""
_TYPES = {
    pa.null(): pa.string(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
_IN_FILES = {**_TYPES, pa.null(): pa.int32()}


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in types that Spark has.

    Raises:
        UserError: Spark does not have a type, or cannot tell names apart.
    """
    return _schema(schema, _TYPES)


def file_schema(schema: pa.Schema) -> pa.Schema:
    """The schema by which Spark reads a Parquet file of this one: as `spark_schema`, but a column
    that is null everywhere is what Parquet has for it."""
    return _schema(schema, _IN_FILES)


def _schema(schema: pa.Schema, types: Mapping[pa.DataType, pa.DataType]) -> pa.Schema:
    _require_distinct(schema.names)
    found = []
    for field in schema:
        try:
            found.append(field.with_type(_typed(usual_type(field.type), types)))
        except UserError as error:
            raise UserError(f"key {field.name!r}: {error}") from error
    return pa.schema(found)


def _typed(kind: pa.DataType, types: Mapping[pa.DataType, pa.DataType]) -> pa.DataType:
    if kinds.is_list(kind):
        return pa.list_(_typed(kind.value_type, types))
    if kinds.is_struct(kind):
        _require_distinct([each.name for each in kind.fields])
        return pa.struct([each.with_type(_typed(each.type, types)) for each in kind.fields])
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", UTC_NAME)
    if kinds.is_decimal(kind):
        if kind.precision > DIGITS_MAX:
            raise UserError(
                f"decimals of {kind.precision} digits are more than the {DIGITS_MAX} that Spark "
                "has: round them, or make them text"
            )
        return pa.decimal128(kind.precision, kind.scale)
    return types.get(kind, kind)


def _require_distinct(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise UserError(
                f"keys {other!r} and {name!r} differ only in case, and Spark does not tell them "
                "apart: rename one"
            )


def for_spark(table: pa.Table) -> pa.Table:
    """Rows in types that all who read parts have in the same way.

    Raises:
        UserError: Spark does not have a type, or cannot tell names apart.
    """
    spark_schema(table.schema)
    usual = usual_schema(table.schema)
    return table if usual is None else table.cast(usual)


def united(schemas: Sequence[pa.Schema]) -> tuple[pa.Schema, dict[str, pa.DataType]]:
    """The schema, in Spark's types, that the rows of all parts fit in.

    Returns:
        The schema, and the types of columns that are to be noted, by name.

    Raises:
        FailsAgain: the types of a column do not fit.
        UserError: Spark does not have them.
    """
    usual = [_usual(schema) for schema in schemas]
    found = _unified([spark_types_but_null(each) for each in usual])
    schema = spark_schema(found)
    noted = {}
    for field in schema:
        given = [each.field(field.name).type for each in usual if field.name in each.names]
        origin = _type_of_all(given)
        if origin is not None and origin != field.type and _is(origin, field.type):
            noted[field.name] = origin
    return schema, noted


def joined_type(name: str, *of: pa.DataType) -> pa.DataType:
    """The type, in Spark, that holds the values of columns of these types.

    Args:
        name: of the key, for errors.

    Raises:
        FailsAgain, UserError: as `united`.
    """
    schemas = [spark_types_but_null(pa.schema([(name, kind)])) for kind in of]
    found = _unified(schemas)
    spark_schema(found)  # two decimals may need more digits together
    return found.field(0).type


def _usual(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(each.name, usual_type(each.type)) for each in schema])


def spark_types_but_null(schema: pa.Schema) -> pa.Schema:
    """The schema in types that Spark has, in which null can become any other."""
    return _schema(schema, {key: kind for key, kind in _TYPES.items() if not kinds.is_null(key)})


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    for name in dict.fromkeys(name for each in schemas for name in each.names):
        found = {each.field(name).type for each in schemas if name in each.names}
        if pa.string() in found and pa.binary() in found:
            raise FailsAgain(f"key {name!r} has text in one part and bytes in another")
    try:
        return pa.unify_schemas(list(schemas), promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise FailsAgain(
            f"the types of a column differ between parts: {error}; give the task a `schema`"
        ) from error


def _type_of_all(given: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type of the values of one column in all parts."""
    try:
        schemas = [pa.schema([("v", kind)]) for kind in given]
        return pa.unify_schemas(schemas, promote_options="permissive").field("v").type
    except pa.ArrowException:
        return None


def _is(origin: pa.DataType, kind: pa.DataType) -> bool:
    try:
        return bool(_typed(origin, _TYPES) == kind)
    except UserError:
        return False


def with_notes(frame: Any, noted: Mapping[str, pa.DataType]) -> Any:
    """A DataFrame whose columns say which types their values had."""
    for name, kind in noted.items():
        of_spark = frame.schema[name].dataType.jsonValue()
        frame = frame.withMetadata(name, note_of(kind, of_spark))
    return frame


def fitted(column: Any, given: pa.DataType, wanted: Any, key: str) -> Any:
    """A column as another type; fields of structs that it lacks are null, and others are left.

    Args:
        given: the usual type of what it was read from, by `file_schema`.
        wanted: of Spark.

    Raises:
        FailsAgain: no such value is one of `wanted`.
    """
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import ArrayType, StructType

    if kinds.is_null(given):
        return functions.lit(None).cast(wanted)
    have = from_arrow_type(_typed(given, _IN_FILES))
    if have == wanted:
        return column
    if kinds.is_struct(given) and isinstance(wanted, StructType):
        mine = {field.name: field.type for field in given.fields}
        fields = [
            (
                fitted(column.getField(field.name), mine[field.name], field.dataType, key)
                if field.name in mine
                else functions.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in wanted.fields
        ]
        return functions.when(column.isNotNull(), functions.struct(*fields))
    if kinds.is_list(given) and isinstance(wanted, ArrayType):
        of = given.value_type, wanted.elementType
        return functions.transform(column, lambda each: fitted(each, *of, key))
    return _exact(column, have, wanted, key)


def _exact(column: Any, have: Any, wanted: Any, key: str) -> Any:
    """A column as another type, with an error for a value that would be another one."""
    from pyspark.sql import functions
    from pyspark.sql.types import DoubleType, FloatType, StringType

    if not _alike(have, wanted):
        raise FailsAgain(
            f"key {key!r} has values of type {have.simpleString().upper()}, which are none of "
            f"{wanted.simpleString().upper()}"
        )
    if isinstance(have, StringType) or isinstance(wanted, StringType) or _widens(have, wanted):
        return column.cast(wanted)
    cast = column.try_cast(wanted)
    kept = cast.try_cast(have).eqNullSafe(column)
    if isinstance(have, DoubleType) and isinstance(wanted, FloatType):  # which may round
        kept = functions.abs(cast).eqNullSafe(float("inf")) == functions.abs(column).eqNullSafe(
            float("inf")
        )
    what = f"key {key!r}: a value does not fit {wanted.simpleString().upper()}: "
    said = functions.concat(functions.lit(what), column.cast("string"))
    return functions.when(kept, cast).otherwise(functions.raise_error(said).cast(wanted))


def _alike(have: Any, wanted: Any) -> bool:
    """Whether a value of one type may be one of another."""
    from pyspark.sql import types

    if isinstance(wanted, types.StringType):
        return not isinstance(have, types.BinaryType)
    if isinstance(have, types.StringType):
        return not isinstance(wanted, types.BinaryType)
    both = (types.NumericType, types.BooleanType), (types.DateType, types.TimestampType,
                                                    types.TimestampNTZType)  # fmt: skip
    return any(isinstance(have, each) and isinstance(wanted, each) for each in both)


def _widens(have: Any, wanted: Any) -> bool:
    """Whether each value of one type is one of the other, or the cast raises by itself."""
    from pyspark.sql import types

    whole = [types.ByteType, types.ShortType, types.IntegerType, types.LongType]
    if type(have) in whole and type(wanted) in whole:
        return whole.index(type(have)) <= whole.index(type(wanted))
    if type(have) in whole[:3] and isinstance(wanted, types.DoubleType):
        return True
    of_floats = isinstance(have, types.FloatType), isinstance(wanted, types.DoubleType)
    return all(of_floats) or isinstance(have, types.DateType)
