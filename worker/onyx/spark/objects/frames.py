"""Parquet parts as one DataFrame, also when their schemas differ.

Parts are written from segments as they come, so one part may have integers where another has
floats, lack a column, or have one that is always null. Spark reads files of one schema; so the
parts are read by groups of equal schema, cast to the schema that all fit (`spark.types`), and
united. Fields meet by their names: Spark itself casts a struct by the positions of its fields,
which are in the order of the first segment of each part. What Spark would find in a file itself is
not enough: Parquet has no durations, and no type for what is null everywhere. Objects of a store
are read by executors too (`spark.objects`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from onyx.errors import FailsAgain
from onyx.flow.columns.types import usual_type
from onyx.spark.objects.reading import read_files, schemas_of
from onyx.spark.types import file_schema, fitted, united, with_notes


def read_parts(session: Any, paths: Sequence[str], ddl: str | None) -> Any:
    """A DataFrame of all rows of `paths`, in no order.

    Raises:
        FailsAgain: there are no parts and no schema, or the types of a column do not fit.
        UserError, Unavailable: an object store refuses, or cannot be reached.
    """
    groups: dict[pa.Schema, list[str]] = {}
    for path, schema in zip(paths, schemas_of(paths), strict=True):
        groups.setdefault(schema.remove_metadata(), []).append(path)
    wanted, noted = _wanted(session, list(groups), ddl)
    if not groups:
        return session.createDataFrame([], wanted)
    frames = [
        _cast(_read(session, group, schema), schema, wanted) for schema, group in groups.items()
    ]
    return with_notes(reduce(lambda some, more: some.unionByName(more), frames), noted)


def _read(session: Any, paths: Sequence[str], schema: pa.Schema) -> Any:
    """Files of one schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return read_files(session, paths, from_arrow_schema(file_schema(schema)))


def _wanted(
    session: Any, schemas: list[pa.Schema], ddl: str | None
) -> tuple[Any, Mapping[str, pa.DataType]]:
    """The schema of the DataFrame, and what its columns note."""
    if ddl is not None:
        return session.createDataFrame([], ddl).schema, {}
    if not schemas:
        raise FailsAgain("there are no parts to read; give the task a `schema`")
    from pyspark.sql.pandas.types import from_arrow_schema

    schema, noted = united(schemas)
    return from_arrow_schema(schema), noted


def _cast(frame: Any, schema: pa.Schema, wanted: Any) -> Any:
    from pyspark.sql import functions

    return frame.select(
        *(
            (
                fitted(
                    frame[_quoted(field.name)],
                    usual_type(schema.field(field.name).type),
                    field.dataType,
                    field.name,
                )
                if field.name in schema.names
                else functions.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in wanted.fields
        )
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
