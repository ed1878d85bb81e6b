"""Rows of a part as record batches of a schema. Runs in Spark's Python workers.

The readers of the input `files` do the work: formats, compression, object stores. Only how a line
becomes columns is the source's own (`lines`), because a user asks for parts of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from onyx.errors import OnyxError, UserError
from onyx.flow.columns.record_batch import Columns
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.context import context_of
from onyx.plugins.files.byte_sources import FileBytes
from onyx.plugins.files.extras import Extras
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import InputOptions
from onyx.plugins.files.parquet_reader import ParquetRows
from onyx.plugins.files.text_reader import FileBlocks, FileReader
from onyx.plugins.protocol import Cursor, Reader
from onyx.plugins.records import BadRecords, Records
from onyx.seams import SystemClock
from onyx.spark_source.fitting import as_text, fitted
from onyx.spark_source.lines import JsonLines, Misfit, TextLines
from onyx.spark_source.offsets import Rows
from onyx.storage.files import Files

BATCH_ROWS = 65_536
TEXT = pa.schema([("value", pa.string())])
"""The schema of rows that are read as text."""
_PARQUET = ".parquet"
_READ = CatalogEntry("onyx", "input", plugin="files", batch_format="arrow")
_JOB = Job("spark", ((_READ.name, "spark"),), (_READ,))
"""The job as whose input a part is read."""


def batches(rows: Rows, schema: pa.Schema, text: bool = False) -> Iterator[pa.RecordBatch]:
    """The rows, at most `BATCH_ROWS` at a time.

    Args:
        schema: of the batches; other columns and fields are left out, and those that are missing
            are null. A string holds any value, as JSON.
        text: whether a row is the JSON of all that it has, in the only column of the schema.

    Raises:
        UserError: the part is gone or damaged, or a row does not fit the schema.
    """
    position = rows.first
    is_parquet = rows.path.endswith(_PARQUET)
    try:
        reader = _opened(rows, schema, text)
        try:
            while (rows.last is None or position < rows.last) and not reader.exhausted():
                most = BATCH_ROWS if rows.last is None else min(BATCH_ROWS, rows.last - position)
                batch = reader.read_columns(most)  # type: ignore[attr-defined]
                if not len(batch):
                    continue
                if is_parquet:
                    found = Columns.of(batch)
                    batch = (
                        as_text(found, schema)
                        if text
                        else fitted(found, schema, rows.path, position)
                    )
                yield batch
                position += len(batch)
        finally:
            reader.close()
    except OnyxError as error:
        if type(error) is Misfit:
            raise
        raise UserError(_gone(rows.path, error)) from error


def count(path: str) -> int:
    """The rows of a part: by the footer of a Parquet file, by counting those of other files.

    Raises:
        UserError: the part is gone or damaged.
    """
    if not path.endswith(_PARQUET):
        return sum(batch.num_rows for batch in batches(Rows(path), TEXT, text=True))
    try:
        parquet = ParquetRows(path, 0, Files())
    except OnyxError as error:
        raise UserError(_gone(path, error)) from error
    try:
        return parquet.rows
    finally:
        parquet.close()


def _opened(rows: Rows, schema: pa.Schema, text: bool) -> Reader:
    """A reader at the first of the rows."""
    options = InputOptions(path=rows.path, format="parquet")
    if rows.path.endswith(_PARQUET):
        context = replace(_context(), schema=None if text else schema)
        return FilesInput(context, options).open(rows.path, Cursor(rows.first))
    records: Records = TextLines(rows, schema) if text else JsonLines(rows, schema)
    source = FileBytes(rows.path, 0, Files())
    bad, extras = BadRecords(rows.path, keep=False), Extras(rows.path, None, None)
    most = options.record_bytes_max
    reader = FileReader(FileBlocks(source, records, bad, Cursor(0, 0), most, extras, columns=True))
    try:
        reader.skip(rows.first)
    except OnyxError:
        reader.close()
        raise
    return reader


def _context() -> Any:
    return context_of(
        _JOB, _READ, JobId("spark"), PeerId("spark"), GroupId("spark"), SystemClock(), _no_function
    )


def _no_function(name: str) -> Any:
    raise AssertionError(f"parts need no function, and {name} was asked for")


def _gone(path: str, error: OnyxError) -> str:
    return (
        f"{path} cannot be read where Spark runs ({error}). Parts must stay until they are read, "
        "on a volume or object store that Spark's machines see under the same name"
    )
