"""Parquet files and objects as a DataFrame, also when their schemas differ.

Parts are written from segments as they come, so one part may have integers where another has
floats, lack a column, or have one that is always null. Spark reads files of one schema; so the
parts are read by groups of equal schema, cast to the schema that all fit (`spark.types`), and
united. Fields meet by their names: Spark itself casts a struct by the positions of its fields,
which are in the order of the first segment of each part. What Spark would find in a file itself is
not enough: Parquet has no durations, and no type for what is null everywhere.

Objects are read by executors from the store. PySpark's package has no libraries for object stores,
and the one of Hadoop needs an SDK of 600 MB. So executors read with the client that Onyx has, and
hand the rows to Spark as Arrow. Only the name of a function of ours and URLs pass through Spark's
pickle. A small object is one request; of a large one each group of rows is read by ranges, so a
process of an executor holds one group of rows, and its disk nothing. Rejected: Spark's Python data
source, which does not leave out columns either, and has to be registered in each session.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from onyx.errors import FailsAgain, UserError
from onyx.flow.columns.types import usual_type
from onyx.spark.objects.messages import carried
from onyx.spark.types import file_schema, fitted, united, with_notes
from onyx.storage.objects.reader import opened_object
from onyx.storage.objects.urls import ObjectUrl, parse_url
from onyx.storage.opening import is_remote

BATCH_ROWS = 10_000
"""The number of rows, as Spark's own batches."""
TASKS_MAX = 256
"""Tasks of Spark for one frame; more objects than that share them."""
REQUESTS_MAX = 16
"""At a time, for footers."""
_PATTERN = re.compile(r"[\[\]{}*?\\]")


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
        _cast(_read_group(session, group, schema), schema, wanted)
        for schema, group in groups.items()
    ]
    return with_notes(reduce(lambda some, more: some.unionByName(more), frames), noted)


def _read_group(session: Any, paths: Sequence[str], schema: pa.Schema) -> Any:
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


def read_files(session: Any, paths: Sequence[str], schema: Any) -> Any:
    """A DataFrame of all rows of some files, in no order: Spark reads those of a folder itself.

    Args:
        paths: absolute ones, or URLs; of Parquet files, at least one.
        schema: a `StructType`. A column that an object lacks is null, others are left out.
    """
    if is_remote(paths[0]):
        return read_objects(session, paths, schema)
    return session.read.schema(schema).parquet(*map(file_url, paths))


def file_url(path: str) -> str:
    """A local path as Spark reads it, which takes any other for a pattern on its default store."""
    return "file://" + _PATTERN.sub(r"\\\g<0>", os.path.abspath(path))


def read_objects(session: Any, urls: Sequence[str], schema: Any) -> Any:
    """A DataFrame of all rows of some objects, in no order.

    Args:
        urls: `s3://...` of Parquet objects.
        schema: a `StructType`. A column that an object lacks is null, others are left out.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    return fetched(session, urls, to_arrow_schema(schema, timezone="UTC"), schema)


def fetched(
    session: Any, urls: Sequence[str], wanted: pa.Schema, schema: Any, rows_max: int = BATCH_ROWS
) -> Any:
    """A DataFrame of what executors fetch.

    Args:
        wanted: the schema as Arrow has it.
        schema: as Spark has it, or its DDL.
        rows_max: of a batch.
    """
    if not urls:
        return session.createDataFrame([], schema)
    fetch = partial(fetch_rows, wanted.serialize().to_pybytes(), list(urls), rows_max)
    numbers = session.range(0, len(urls), 1, min(len(urls), TASKS_MAX))
    return numbers.mapInArrow(fetch, schema)


def schemas_of(urls: Sequence[str]) -> list[pa.Schema]:
    """The schema of each file, from its footer. Raises like `rows_of`."""
    if not urls or not is_remote(urls[0]):
        return list(map(_local_schema, urls))
    with ThreadPoolExecutor(REQUESTS_MAX) as pool:
        return list(pool.map(lambda url: schema_of(parse_url(url)), urls))


def _local_schema(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is no Parquet file: {error}") from error


def fetch_rows(
    schema: bytes, urls: Sequence[str], rows_max: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of some objects (for `mapInArrow`).

    Args:
        schema: of the rows, serialized.
        rows_max: of a batch.
        batches: indices in `urls`, as their only column.
    """
    wanted = pa.ipc.read_schema(pa.py_buffer(schema))
    with carried():
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows_of(parse_url(urls[number]), wanted, rows_max)


def rows_of(
    url: ObjectUrl, wanted: pa.Schema, rows_max: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet object. A column that it lacks is null.

    Raises:
        UserError: it is gone, or no Parquet object with these columns, or may not be read.
        Unavailable: the store cannot be reached.
    """
    with opened_parquet(url) as parquet:
        given = parquet.schema_arrow.names
        columns = (
            None if set(given) <= set(wanted.names) else [n for n in wanted.names if n in given]
        )
        try:
            for batch in parquet.iter_batches(rows_max, columns=columns):
                yield _with_columns(batch, wanted)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{url} cannot be read: {error}") from error


def schema_of(url: ObjectUrl) -> pa.Schema:
    """The schema of a Parquet object. Raises like `rows_of`."""
    with opened_parquet(url) as parquet:
        return parquet.schema_arrow


@contextlib.contextmanager
def opened_parquet(url: ObjectUrl) -> Iterator[pq.ParquetFile]:
    """A Parquet object. Raises like `rows_of`."""
    with opened_object(url) as source:
        try:
            parquet = pq.ParquetFile(source)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{url} is no Parquet file: {error}") from error
        with parquet:
            yield parquet


def _with_columns(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns and types of a schema."""
    arrays = [_column_of(batch, field) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _column_of(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(batch.num_rows, field.type)
    array = batch.column(at)
    if array.type == field.type:
        return array
    # Spark's times have microseconds; what is finer is cut off.
    return pc.cast(array, field.type, safe=not kinds.is_timestamp(field.type))
