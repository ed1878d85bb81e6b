"""Formats of parts: JSON lines and Parquet.

The rows of a Parquet file are tables that fit together, in one schema. What does not fit is found
when it comes, so it alone is refused. A type may become wider on the way, as integers do when
fractions come: then all rows are cast, which happens a few times a key.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from typing import BinaryIO

import pyarrow as pa

from onyx.base.on_demand import ModuleOnDemand
from onyx.codec.segments import bytes_each
from onyx.errors import OutputFailed, UserError
from onyx.flow.columns.record_batch import Columns, concatenated, keys_of
from onyx.flow.columns.values import MISMATCH, to_array
from onyx.flow.segment import Segment
from onyx.plugins.jsonl import JsonLines, Nan
from onyx.plugins.options import task_error
from onyx.plugins.parts.writer import ColumnsBody
from onyx.plugins.protocol import PluginContext

pq = ModuleOnDemand("pyarrow.parquet")
GZIP_LEVEL = 3
"""Most of the gain of the default level at half of its cost."""
COLUMNS_SEGMENTS = 8_192
"""Segments that are made into columns at a time: below about 1,000, Arrow costs ten times more."""
COLUMNS_BYTES = 16_777_216
"""The size of large ones, as they would be encoded for another worker."""
WITHOUT_KEYS = "the segments have no keys, so there are no columns"
Fit = Callable[[pa.Table], pa.Table]
SMALL_MAX = 256
"""Tables that are kept apart: each takes some KiB, also of one row."""


class JsonLinesFormat:
    """One JSON object a line, plain or gzip."""

    def __init__(
        self, context: PluginContext, compression: str = "none", nan: Nan = "error"
    ) -> None:
        """`compression` is `none` or `gzip`; `nan` see `JsonLines`."""
        self._lines = JsonLines(context, nan)
        self._gzip = compression == "gzip"
        self.suffix = ".jsonl.gz" if self._gzip else ".jsonl"

    def begin(self, file: BinaryIO) -> ColumnsBody:
        """A body that encodes each batch at once."""
        return _JsonLinesBody(self._lines, file, self._gzip)


class _JsonLinesBody:
    def __init__(self, lines: JsonLines, file: BinaryIO, compressed: bool) -> None:
        self._encode = lines.encode
        self._encode_columns = lines.encode_columns
        self._file = file
        self._out = (
            gzip.GzipFile(fileobj=file, mode="wb", compresslevel=GZIP_LEVEL, mtime=0, filename="")
            if compressed
            else None
        )

    def add(self, segments: list[Segment]) -> None:
        (self._out or self._file).write(self._encode(segments))

    def add_columns(self, columns: Columns) -> None:
        for lines in list(self._encode_columns(columns)):  # all or nothing is taken
            (self._out or self._file).write(lines)

    def size_bytes(self) -> int:
        return self._file.tell()

    def finish(self) -> None:
        if self._out is not None:
            self._out.close()


def _itself(table: pa.Table) -> pa.Table:
    return table


class ParquetFormat:
    """Columns, with one schema a part: a key that some segments lack is null there."""

    def __init__(
        self, context: PluginContext, compression: str = "snappy", fit: Fit = _itself
    ) -> None:
        """
        Args:
            compression: a codec of Parquet: `none`, `snappy`, `gzip` or `zstd`.
            fit: gives rows the types that whoever reads the parts has. Raises UserError.
        """
        self._context = context
        self._compression = compression
        self._fit = fit
        self.suffix = ".parquet"

    def begin(self, file: BinaryIO) -> ColumnsBody:
        """A body that gathers columns until the part ends."""
        return _ParquetBody(self._context, file, self._compression, self._fit)


class _ParquetBody:
    """Columns are kept, and segments are made into columns in pieces; the schema is known only at
    the end. Where segments are of requests they are made into columns at once: what does not fit is
    the answer to its request, and ends no job."""

    def __init__(self, context: PluginContext, file: BinaryIO, compression: str, fit: Fit) -> None:
        self._context = context
        self._file = file
        self._compression = compression
        self._fit = fit
        self._waiting: list[Segment] = []
        self._waiting_bytes = 0.0
        self._rows = ParquetRows()

    def add(self, segments: list[Segment]) -> None:
        if self._context.answers:
            self._add_rows(segments)
            return
        self._waiting.extend(segments)
        self._waiting_bytes += bytes_each(segments) * len(segments)
        if len(self._waiting) >= COLUMNS_SEGMENTS or self._waiting_bytes >= COLUMNS_BYTES:
            self._add_waiting()

    def add_columns(self, columns: Columns) -> None:
        self._add_waiting()
        if not columns.record_batch.num_columns:
            raise self._unwritable(WITHOUT_KEYS)
        self._add(pa.Table.from_batches([columns.record_batch]))

    def size_bytes(self) -> int:
        return self._rows.size_bytes + int(self._waiting_bytes)

    def finish(self) -> None:
        self._add_waiting()
        try:
            pq.write_table(self._rows.table(), self._file, compression=self._compression)
        except MISMATCH as error:
            raise OutputFailed(str(self._unwritable(f"{error}"))) from error

    def _add_waiting(self) -> None:
        if not self._waiting:
            return
        segments, self._waiting, self._waiting_bytes = self._waiting, [], 0.0
        try:
            self._add_rows(segments)
        except UserError as error:  # most of these segments were taken by earlier calls
            raise OutputFailed(str(error)) from error

    def _add_rows(self, segments: list[Segment]) -> None:
        keys = keys_of(segments)
        if not keys:
            raise self._unwritable(WITHOUT_KEYS)
        self._add(pa.table([self._column(key, segments) for key in keys], names=keys))

    def _add(self, table: pa.Table) -> None:
        try:
            self._rows.add(self._fit(table))
        except (UserError, *MISMATCH) as error:
            raise self._unwritable(f"{error}") from error

    def _column(self, key: str, segments: list[Segment]) -> pa.Array:
        try:
            return to_array([segment.get(key) for segment in segments])
        except MISMATCH as error:
            raise self._unwritable(f"key {key!r}: {error}") from error

    def _unwritable(self, what: str) -> UserError:
        return task_error(
            self._context,
            f"cannot be written as Parquet: {what}; give a key values of one type, or write jsonl",
        )


class ParquetRows:
    """Rows in types that hold all of them; a key that some lack is null there."""

    def __init__(self) -> None:
        self._large: list[pa.Table] = []
        self._small: list[pa.Table] = []
        self._schema: pa.Schema | None = None
        self.size_bytes = 0
        """The size of what was added, about."""

    def add(self, table: pa.Table) -> None:
        """Add rows. Raises what `MISMATCH` lists: they do not fit, and nothing was added."""
        known = self._schema
        if known is None or not table.schema.equals(known):
            table = self._fitting(table)
        self._small.append(table)
        self.size_bytes += table.nbytes
        if len(self._small) == SMALL_MAX:
            self._large.append(concatenated(self._small).combine_chunks())
            self._small = []

    def table(self) -> pa.Table:
        """All rows."""
        return concatenated([*self._large, *self._small])

    def _fitting(self, table: pa.Table) -> pa.Table:
        """Rows that have, beside those before, one type in each column."""
        known = self._schema
        fitting = table if known is None else concatenated([known.empty_table(), table])
        if known is None or not fitting.schema.equals(known):
            _require_writable(fitting.schema)
        if known is not None and any(_is_wider(each, fitting.schema) for each in known):
            all_rows = concatenated([*self._large, *self._small, table])
            rows = all_rows.num_rows - table.num_rows
            self._large, self._small = [all_rows.slice(0, rows)], []
            fitting = all_rows.slice(rows)
        self._schema = fitting.schema
        return fitting


def _is_wider(before: pa.Field, schema: pa.Schema) -> bool:
    return not (pa.types.is_null(before.type) or schema.field(before.name).type == before.type)


def _require_writable(schema: pa.Schema) -> None:
    """Parquet lacks some types, such as that of an object without fields."""
    with pq.ParquetWriter(io.BytesIO(), schema):
        pass
