"""The contents of an object that an executor writes: Parquet, ORC, or lines that Spark has made."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

GROUP_ROWS_MAX = 262_144
GROUP_BYTES_MAX = 67_108_864
"""The size of rows that are gathered: in memory, they are a group of rows of a file."""
GZIP_LEVEL = 6


class Body(Protocol):
    """The body of one object."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        ...

    def finish(self) -> None:
        """Write what is left."""
        ...


class Columns:
    """Parquet or ORC: rows are gathered, because each write makes a group of its own."""

    def __init__(self, file: Any, opened: Callable[[Any, pa.Schema], Any]) -> None:
        """`opened`: a writer of tables with a schema."""
        self._file = file
        self._opened = opened
        self._writer: Any = None
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows. An empty batch says what the columns are."""
        if self._writer is None:
            self._writer = self._opened(self._file, batch.schema)
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS_MAX or self._bytes >= GROUP_BYTES_MAX:
            self._flush()

    def finish(self) -> None:
        """Write what is left."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._batches)
        self._batches, self._rows, self._bytes = [], 0, 0
        if isinstance(self._writer, pq.ParquetWriter):
            self._writer.write_table(table, row_group_size=GROUP_ROWS_MAX)
        else:
            self._writer.write(table)


class Lines:
    """The only column, a line a row."""

    def __init__(self, file: Any, header: str, packed: bool) -> None:
        self._out = gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) if packed else file
        self._packed = packed
        if header:
            self._write([header])

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        self._write([line or "" for line in batch.column(0).to_pylist()])

    def finish(self) -> None:
        """Write what is left."""
        if self._packed:
            self._out.close()

    def _write(self, lines: list[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines).encode())


def body(file: Any, form: str, compression: str, header: str) -> Body:
    """For a format of `forms.FORMS`."""
    if form == "parquet":
        return Columns(
            file, lambda to, schema: pq.ParquetWriter(to, schema, compression=compression)
        )
    if form == "orc":
        from pyarrow import orc

        return Columns(file, lambda to, _: orc.ORCWriter(to, compression=compression))
    return Lines(file, header, compression == "gzip")


def suffix(form: str, compression: str) -> str:
    """How the names of objects end."""
    columns = {"parquet": ".parquet", "orc": ".orc"}
    packed = ".gz" if compression == "gzip" else ""
    return columns.get(form) or f".{_ENDINGS.get(form, form)}{packed}"


_ENDINGS: Mapping[str, str] = {"text": "txt"}
