"""Rows of a part as record batches of a schema. Runs in Spark's Python workers.

The reader of the input `files` does the work: formats, compression, object stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa

from onyx.errors import OnyxError, UserError
from onyx.flow.batch import Segments
from onyx.flow.columns import Columns
from onyx.flow.schemas import as_columns
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.context import context_of
from onyx.plugins.files.file_systems import Files
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import InputOptions
from onyx.plugins.files.parquet_reader import ParquetRows
from onyx.plugins.protocol import Cursor
from onyx.seams import SystemClock
from onyx.spark.source.offsets import Rows

BATCH_ROWS = 65_536
_PARQUET = ".parquet"
_READ = CatalogEntry("onyx", "input", plugin="files", batch_format="arrow")
_JOB = Job("spark", ((_READ.name, "spark"),), (_READ,))
"""As whose input a part is read."""


def batches(rows: Rows, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The rows, at most `BATCH_ROWS` at a time.

    Args:
        schema: of the batches; other columns are left out, and those that are missing are null.
            None: each batch has the columns that it is found with.

    Raises:
        UserError: the part is gone or damaged, or a row does not fit the schema.
    """
    names = None if schema is None else schema.names
    position = rows.first
    try:
        # Lines are decoded by the types that they have: their reader takes no other schema.
        source = _input(rows.path, schema if rows.path.endswith(_PARQUET) else None)
        reader = source.open(rows.path, Cursor(rows.first))
        try:
            while (rows.last is None or position < rows.last) and not reader.exhausted():
                most = BATCH_ROWS if rows.last is None else min(BATCH_ROWS, rows.last - position)
                found = reader.read_columns(most)  # type: ignore[attr-defined]
                segments = found if isinstance(found, list) else Columns.of(found)
                if len(segments):
                    yield _fitted(_chosen(segments, names), schema, rows.path, position)
                    position += len(segments)
        finally:
            reader.close()
    except OnyxError as error:
        if type(error) is Misfit:
            raise
        raise UserError(_gone(rows.path, error)) from error


class Misfit(UserError):
    """A row does not fit the schema."""


def count(path: str) -> int:
    """The rows of a part: by the footer of a Parquet file, by counting those of other files.

    Raises:
        UserError: the part is gone or damaged.
    """
    if not path.endswith(_PARQUET):
        return sum(batch.num_rows for batch in batches(Rows(path), None))
    try:
        parquet = ParquetRows(path, 0, Files())
    except OnyxError as error:
        raise UserError(_gone(path, error)) from error
    try:
        return parquet.rows
    finally:
        parquet.close()


def _chosen(segments: Segments, names: list[str] | None) -> Segments:
    if names is None:
        return segments
    if isinstance(segments, Columns):
        return segments.only([name for name in names if segments.has(name)])
    wanted = frozenset(names)
    return [{key: value for key, value in each.items() if key in wanted} for each in segments]


def _fitted(
    segments: Segments, schema: pa.Schema | None, path: str, position: int
) -> pa.RecordBatch:
    columns, _, failures = as_columns(segments, schema)
    if failures:
        index, why = failures[0]
        raise Misfit(
            f"{path}, row {position + index}: {why}; give a schema that holds it, "
            'spark.read.schema("...").format("onyx")'
        )
    batch = columns.record_batch
    return batch if schema is None else pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _input(path: str, schema: pa.Schema | None) -> FilesInput:
    context = context_of(
        _JOB, _READ, JobId("spark"), PeerId("spark"), GroupId("spark"), SystemClock(), _no_function
    )
    form: Literal["parquet", "jsonl"] = "parquet" if path.endswith(_PARQUET) else "jsonl"
    return FilesInput(replace(context, schema=schema), InputOptions(path=path, format=form))


def _no_function(name: str) -> Any:
    raise AssertionError(f"parts need no function, and {name} was asked for")


def _gone(path: str, error: OnyxError) -> str:
    return (
        f"{path} cannot be read where Spark runs ({error}). Parts must stay until they are read, "
        "on a volume or object store that Spark's machines see under the same name"
    )
