"""Rows of a part as record batches of a schema. Runs in Spark's Python workers.

The readers of the input `files` do the work: formats, compression, object stores. Only how a line
becomes columns is the source's own (`lines`), because a user asks for parts of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from onyx.errors import OnyxError, UserError
from onyx.flow.columns.record_batch import Columns
from onyx.plugins.parts.offsets import Rows
from onyx.plugins.protocol import Reader
from onyx.spark_source.fitting import as_text, fitted
from onyx.spark_source.line_parts import open_lines
from onyx.spark_source.lines import Misfit
from onyx.spark_source.parquet_parts import open_parquet, rows_of_parquet

BATCH_ROWS = 65_536
TEXT = pa.schema([("value", pa.string())])
"""The schema of rows that are read as text."""
_PARQUET = ".parquet"


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
