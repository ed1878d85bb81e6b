"""Parquet objects as a DataFrame that executors read from the store.

PySpark's package has no libraries for object stores, and the one of Hadoop needs an SDK of 600 MB.
So executors read with the client that Onyx has, and hand the rows to Spark as Arrow. Only the name
of a function of ours and URLs pass through Spark's pickle. Rejected: Spark's Python data source,
which does not leave out columns either, and has to be registered in each session.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from onyx.errors import UserError
from onyx.spark.objects.fetch import BATCH_ROWS, fetch_rows, schema_of
from onyx.storage.objects.urls import parse_url
from onyx.storage.opening import is_remote

_PATTERN = re.compile(r"[\[\]{}*?\\]")
TASKS_MAX = 256
"""Tasks of Spark for one frame; more objects than that share them."""
REQUESTS_MAX = 16
"""At a time, for footers."""


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
    """The schema of each file, from its footer. Raises like `fetch.rows_of`."""
    if not urls or not is_remote(urls[0]):
        return list(map(_local_schema, urls))
    with ThreadPoolExecutor(REQUESTS_MAX) as pool:
        return list(pool.map(lambda url: schema_of(parse_url(url)), urls))


def _local_schema(path: str) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is no Parquet file: {error}") from error
