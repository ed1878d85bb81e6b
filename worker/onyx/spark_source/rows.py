"""Rows of a part as record batches of a schema, which may name some of the fields of a column only.
Runs in Spark's Python workers.

The readers of the input `files` do the work: formats, compression, object stores. Only how a line
becomes columns is the source's own (`lines`), because a user asks for parts of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from msgspec.structs import replace

from onyx.base.seams import SystemClock
from onyx.errors import OnyxError, UserError
from onyx.flow.columns.record_batch import Columns, shown_dicts
from onyx.flow.columns.values import MISMATCH, cast_values, python_values
from onyx.ids import GroupId, JobId, PeerId
from onyx.model.job import CatalogEntry, Job
from onyx.plugins.context import context_of
from onyx.plugins.files.byte_sources import FileBytes
from onyx.plugins.files.extras import Extras
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import FilesInputOptions
from onyx.plugins.files.parquet_reader import ParquetRows
from onyx.plugins.files.text_reader import FileBlocks, FileReader
from onyx.plugins.parts.offsets import Rows
from onyx.plugins.protocol import Cursor, Reader
from onyx.plugins.records import BadRecords, Records
from onyx.rights import EVERYTHING
from onyx.spark_source.lines import JsonLines, Misfit, TextLines, misfit
from onyx.storage.files import InputFiles

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
                        else _fitted_to(found, schema, rows.path, position)
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
        return rows_of_parquet(path)
    except OnyxError as error:
        raise UserError(_gone(path, error)) from error


def _opened(rows: Rows, schema: pa.Schema, text: bool) -> Reader:
    """A reader at the first of the rows."""
    if rows.path.endswith(_PARQUET):
        return open_parquet(rows, None if text else schema)
    return open_lines(rows, schema, text)


def _gone(path: str, error: OnyxError) -> str:
    return (
        f"{path} cannot be read where Spark runs ({error}). Parts must stay until they are read, "
        "on a volume or object store that Spark's machines see under the same name"
    )


def open_parquet(rows: Rows, schema: pa.Schema | None) -> Reader:
    """A reader at the first of the rows; with a schema, of its columns only.

    Raises:
        OnyxError: the part is gone or damaged.
    """
    context = context_of(
        _JOB, _READ, JobId("spark"), PeerId("spark"), GroupId("spark"), SystemClock(), _no_function
    )
    options = FilesInputOptions(path=rows.path, format="parquet", hive_partitioning=False)
    context = replace(context, schema=schema, rights=EVERYTHING)
    return FilesInput(context, options).open(rows.path, Cursor(rows.first))


def rows_of_parquet(path: str) -> int:
    """How many rows a part has, by its footer. Raises as `open_parquet`."""
    parquet = ParquetRows(path, 0, InputFiles())
    try:
        return parquet.rows
    finally:
        parquet.close()


def _no_function(name: str) -> Any:
    raise AssertionError(f"parts need no function, and {name} was asked for")


def _fitted_to(columns: Columns, schema: pa.Schema, path: str, first: int) -> pa.RecordBatch:
    """Rows of these columns; those that they lack are null.

    Args:
        path: where the rows are from, for messages.
        first: the index of the first row there.

    Raises:
        Misfit: a value does not fit.
    """
    arrays = []
    for field in schema:
        if not columns.has(field.name):
            arrays.append(pa.nulls(len(columns), field.type))
            continue
        column = columns.column(field.name)
        try:
            arrays.append(_fitted(column, field.type))
        except MISMATCH:
            row, reason = _first_misfit(column, field)
            raise misfit(path, first + row, reason) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_text(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """Each row as the JSON of an object, in the one column of a schema."""
    texts = [json_text(each) for each in shown_dicts(columns)]
    return pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=schema)


def json_text(value: Any) -> str | None:
    """Text itself, moments as text, and the JSON of anything else."""
    if value is None or isinstance(value, str):
        return value
    data = msgspec.json.encode(value, enc_hook=str)
    text: str = msgspec.json.decode(data) if data.startswith(b'"') else data.decode()
    return text


def _fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    given = column.type
    if given.equals(kind):
        return column
    if kinds.is_string(kind) and not kinds.is_null(given):
        return pa.array(list(map(json_text, python_values(column))), kind)
    if kinds.is_struct(kind) and kinds.is_struct(given) and kind.num_fields:
        found = dict(zip((each.name for each in given.fields), column.flatten(), strict=True))
        fields = [
            _fitted(found[each.name], each.type)
            if each.name in found
            else pa.nulls(len(column), each.type)
            for each in kind.fields
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind.fields), mask=column.is_null())
    if kinds.is_list(kind) and kinds.is_list(given):
        items = _fitted(column.flatten(), kind.value_type)
        lengths = pc.fill_null(column.value_lengths(), 0)
        ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        return pa.ListArray.from_arrays(ends, items, type=kind, mask=column.is_null())
    return cast_values(column, kind)


def _first_misfit(column: pa.Array, field: pa.Field) -> tuple[int, str]:
    for row in range(len(column)):
        one = column.slice(row, 1)
        try:
            _fitted(one, field.type)
        except MISMATCH as error:
            value = type(one[0].as_py()).__name__
            where = f"where the column is of type {field.type}"
            return row, f"key {field.name!r} holds a {value} {where}: {error}"
    return 0, f"key {field.name!r} of type {column.type} cannot be {field.type}"


def open_lines(rows: Rows, schema: pa.Schema, text: bool) -> Reader:
    """A reader at the first of the rows.

    Args:
        text: whether a row is the JSON of all that it has, in the only column of the schema.

    Raises:
        OnyxError: the part is gone or damaged.
    """
    records: Records = TextLines(rows, schema) if text else JsonLines(rows, schema)
    source = FileBytes(rows.path, 0, InputFiles())
    bad, extras = BadRecords(rows.path, keep=False), Extras(rows.path)
    most = FilesInputOptions(path=rows.path, format="parquet").record_bytes_max
    reader = FileReader(FileBlocks(source, records, bad, Cursor(0, 0), most, extras, columns=True))
    try:
        reader.skip(rows.first)
    except OnyxError:
        reader.close()
        raise
    return reader
