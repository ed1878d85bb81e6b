"""The contents of an object that an executor writes: Parquet, ORC, or lines that Spark has made."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from onyx.plugins.files.spark_footer import ROW_METADATA

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

    def __init__(
        self, file: Any, opened: Callable[[Any, pa.Schema], Any], of_spark: str = ""
    ) -> None:
        """
        Args:
            opened: a writer of tables with a schema.
            of_spark: the schema as Spark has it, for the footer; empty if nobody needs it.
        """
        self._file = file
        self._opened = opened
        self._of_spark = of_spark
        self._writer: Any = None
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows. An empty batch says what the columns are."""
        batch = self._as_spark_writes(batch)
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

    def _as_spark_writes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch as in Spark's own files, which have times of day in microseconds: Spark hands
        them over in nanoseconds."""
        if any(has_kind(field.type, kinds.is_time) for field in batch.schema):
            batch = batch.cast(
                pa.schema([field.with_type(_in_microseconds(field.type)) for field in batch.schema])
            )
        metadata = {ROW_METADATA: self._of_spark} if self._of_spark else None
        return batch.replace_schema_metadata(metadata)

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._batches)
        self._batches, self._rows, self._bytes = [], 0, 0
        if isinstance(self._writer, pq.ParquetWriter):
            self._writer.write_table(table, row_group_size=GROUP_ROWS_MAX)
        else:
            self._writer.write(table)


def has_kind(kind: pa.DataType, *wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is one of some, or holds values of one."""
    within = [kind.field(at).type for at in range(kind.num_fields)]
    return any(each(kind) for each in wanted) or any(has_kind(each, *wanted) for each in within)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if kinds.is_time(kind):
        return pa.time64("us")
    if kinds.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    if kinds.is_map(kind):
        return pa.map_(_in_microseconds(kind.key_type), _in_microseconds(kind.item_type))
    if kinds.is_struct(kind):
        return pa.struct([each.with_type(_in_microseconds(each.type)) for each in kind.fields])
    return kind


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


def body(file: Any, form: str, compression: str, header: str, of_spark: str = "") -> Body:
    """For a format of `forms.FORMS`; `of_spark` see `Columns`."""
    if form == "parquet":
        return Columns(
            file, lambda to, schema: pq.ParquetWriter(to, schema, compression=compression), of_spark
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
