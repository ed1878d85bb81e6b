"""What an executor does to read Parquet objects: rows as Arrow, with the columns that are wanted.

A small object is one request; of a large one each group of rows is read by ranges, so a process of
an executor holds one group of rows, and its disk nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.spark.objects.carried import carried
from onyx.storage.objects.reader import opened_object
from onyx.storage.objects.urls import ObjectUrl, parse_url

BATCH_ROWS = 10_000
"""The number of rows, as Spark's own batches."""


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
                yield fitted(batch, wanted)
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


def fitted(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns and types of a schema."""
    arrays = [_column(batch, field) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(batch.num_rows, field.type)
    array = batch.column(at)
    if array.type == field.type:
        return array
    # Spark's times have microseconds; what is finer is cut off.
    return pc.cast(array, field.type, safe=not kinds.is_timestamp(field.type))
