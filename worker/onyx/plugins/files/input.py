"""Input `files`: JSON lines, text, CSV or Parquet, many files shared among the peers of the task.

Every file is a partition; positions are the numbers of its records, from 0. Its format is what the
option says or its name, and splits it into records.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath

import pyarrow as pa
from msgspec.structs import replace

from onyx.errors import OnyxError, UserError
from onyx.model.report import nearest
from onyx.plugins.files.byte_sources import FileBytes
from onyx.plugins.files.csv_format import CsvColumns, CsvRecords, read_header
from onyx.plugins.files.extras import Extras, partition_columns, partition_values
from onyx.plugins.files.lines import (
    JsonLineColumns,
    JsonLineRecords,
    TextColumns,
    TextRecords,
)
from onyx.plugins.files.options import (
    COMPRESSED,
    FilesInputOptions,
    format_by_name,
)
from onyx.plugins.files.parquet_reader import ParquetReader, ParquetRows, rows_of
from onyx.plugins.files.text_reader import FileBlocks, FileReader
from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.options import option_error, pattern_at, task_error
from onyx.plugins.protocol import Behind, Cursor, Input, PluginContext, Reader
from onyx.plugins.records import RECORD, BadRecords, Records
from onyx.plugins.starting import Start, check_partitions, read_start
from onyx.storage.files import InputFiles

FILES_MAX = 65_536
"""Partitions of a job are numbered in 16 bits."""


class FilesInput(Input):
    """Lists the files and opens each as a reader of its format."""

    examined = True
    cooperative: bool
    """True for local files: a block is read in microseconds, and one thread for a chain of tasks
    keeps its batches in the processor's cache. An object store takes its time."""

    def __init__(self, context: PluginContext, options: FilesInputOptions) -> None:
        paths = options.path
        self._context = context
        self._options = options
        self._patterns = [
            pattern_at(context, each) for each in ([paths] if isinstance(paths, str) else paths)
        ]
        self._files = InputFiles()
        self._start = _located(context, read_start(options.start_from))
        self._columns = JsonColumns(context.schema) if context.batch_format == "arrow" else None
        self._check_extras()
        self._sizes: dict[str, int] = {}
        """Bytes or rows of files, for `behind`."""
        self._formats = Formats(context, options, self._files, self._columns)
        self.cooperative = not any(map(self._files.remote, self._patterns))

    def partitions(self) -> Sequence[str]:
        """The paths of the files that the patterns match, sorted.

        Raises:
            UserError: no file matches, there are too many, or a format is unknown.
        """
        found: set[str] = set()
        for pattern in self._patterns:
            found.update(self._matching(pattern))
        if not found:
            raise option_error(self._context, "path", "names no files")
        if len(found) > FILES_MAX:
            raise option_error(
                self._context, "path", f"matches {len(found)} files; at most {FILES_MAX} can be"
            )
        for path in found:
            self._formats.name(path)
        check_partitions(self._context, self._start, found)
        return sorted(found)

    def start(self, partition: str) -> Cursor | None:
        """The record that `startFrom` says; nothing of a file that was modified before its time."""
        since_ms = self._start.since_ms(self._context.clock.wall_ms())
        if since_ms is None:
            return Cursor(self._start.position(partition))
        return Cursor(0) if self._files.modified_ms(partition) >= since_ms else None

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader of the format of the file. The cursor holds the version of the file as it was
        first read; a file of another version is refused."""
        self._context.located(partition)  # a link may lead to where jobs may not
        offset, version = _state(cursor)
        if version is not None:
            self._files.expect(partition, version)
        options = self._options
        extras = Extras(
            partition, options.record_number, options.file_name, self._same_in(partition)
        )
        where = f"{self._context.where}: {partition}"
        bad = BadRecords(where, options.on_bad_record != "fail")
        if self._formats.name(partition) == "parquet":
            schema = self._context.schema if self._columns is not None else None
            names = None if schema is None else schema.names
            rows = ParquetRows(partition, cursor.position, self._files, names)
            return ParquetReader(rows, extras, bad)
        records, first_offset = self._formats.records(partition, bad)
        start = Cursor(0, first_offset) if offset is None else Cursor(cursor.position, offset)
        source = FileBytes(partition, start.state, self._files)
        columns = self._columns is not None
        blocks = FileBlocks(source, records, bad, start, options.record_bytes_max, extras, columns)
        reader = FileReader(blocks)
        try:
            reader.skip(cursor.position - start.position)
        except OnyxError:
            reader.close()
            raise
        return reader

    def behind(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        """The bytes of each file from the block on that was read last; rows of Parquet, as its
        footer says. Where a compressed file is, nobody knows. A file is looked at once."""
        found: dict[str, Behind] = {}
        for path, cursor in cursors.items():
            if self._formats.name(path) == "parquet":
                if path not in self._sizes:
                    self._sizes[path] = rows_of(path, self._files)
                found[path] = Behind(max(0, self._sizes[path] - cursor.position))
            elif PurePath(path).suffix.lower() not in COMPRESSED:
                if path not in self._sizes:
                    self._sizes[path] = self._files.size_bytes(path)
                offset = _state(cursor)[0] or 0
                found[path] = Behind(bytes=max(0, self._sizes[path] - offset), bytes_done=offset)
        return found

    def describe(self, partition: str, position: int) -> str:
        """A record, for people."""
        return f"{partition}: {RECORD.format(position)}"

    def column_types(self) -> Mapping[str, pa.DataType]:
        """The column types of JSON lines, as they were learned."""
        return {} if self._columns is None else self._columns.types

    def close(self) -> None:
        """Forget the headers of CSV files."""
        self._formats.forget_headers()

    def _same_in(self, partition: str) -> Mapping[str, pa.Scalar]:
        """The keys that the folders of a file give all of its segments."""
        if not self._options.hive_partitioning:
            return {}
        own = partition.removeprefix(os.path.join(self._context.data_dir, ""))
        schema = self._context.schema if self._columns is not None else None
        try:
            return partition_columns(own, self._options.types, schema)
        except UserError as error:
            raise task_error(self._context, str(error)) from error

    def _matching(self, pattern: str) -> list[str]:
        try:
            files = self._files.matching(pattern)
        except UserError as error:
            raise task_error(self._context, f"option 'path': {error}") from error
        if not files:
            where = (
                ""
                if self._files.remote(pattern)
                else (
                    " on this worker; relative paths count from "
                    f"{self._context.data_dir or os.getcwd()}"
                )
            )
            raise option_error(self._context, "path", f"{pattern!r} matches no file{where}")
        return files

    def _check_extras(self) -> None:
        """A schema names all columns that there are."""
        schema, options = self._context.schema, self._options
        if self._columns is None or schema is None:
            return
        for option, key, kind in (
            ("recordNumber", options.record_number, pa.int64()),
            ("fileName", options.file_name, pa.string()),
        ):
            if key is not None and (key not in schema.names or schema.field(key).type != kind):
                what = f"names {key!r}, which the schema of the task must have with type {kind}"
                raise option_error(self._context, option, what)


def _located(context: PluginContext, start: Start) -> Start:
    """Partitions are files as workers find them; who names one writes it as in `path`."""
    positions = {context.located(path): at for path, at in start.positions.items()}
    return replace(start, positions=positions)


def _state(cursor: Cursor) -> tuple[int | None, str | None]:
    """Offset and version that a cursor carries, as far as its format and its file have them."""
    match cursor.state:
        case [int(offset), str(version)]:
            return offset, version
        case int(offset):
            return offset, None
        case str(version):
            return None, version
    return None, None


class Formats:
    """The formats of the files of one input."""

    def __init__(
        self,
        context: PluginContext,
        options: FilesInputOptions,
        files: InputFiles,
        columns: JsonColumns | None,
    ) -> None:
        """`columns`: learns the columns of JSON lines; None if segments are wanted as dicts."""
        self._context = context
        self._options = options
        self._files = files
        self._columns = columns
        self._headers: dict[str, tuple[list[str], int]] = {}
        """Headers of CSV files, by path: names of columns, and the offset behind them."""

    def forget_headers(self) -> None:
        """Forget the headers of CSV files."""
        self._headers.clear()

    def name(self, path: str) -> str:
        """The format of a file, by the option or by the name of the file. Raises UserError."""
        if self._options.format is not None:
            return self._options.format
        found = format_by_name(path)
        if found is None:
            raise option_error(
                self._context, "format", f"is missing, and the name of {path} does not tell it"
            )
        return found

    def records(self, path: str, bad: BadRecords) -> tuple[Records, int]:
        """What splits a file into records, and the offset of its first record."""
        kind = self.name(path)
        if kind == "jsonl":
            known = self._columns
            return (JsonLineRecords(bad) if known is None else JsonLineColumns(known, bad)), 0
        if kind == "text":
            return (TextRecords(bad) if self._columns is None else TextColumns(bad)), 0
        options = self._options
        delimiter = options.delimiter_of(path)
        if options.columns is not None:
            columns, offset = options.columns, 0
        else:
            if path not in self._headers:
                self._headers[path] = self._read_header(path, delimiter)
            columns, offset = self._headers[path]
        if columns:
            self._check_columns(path, columns)
        types = {name: kind for name, kind in options.types.items() if name in columns}
        if self._columns is None or not columns:
            return CsvRecords(columns, types, delimiter, bad), offset
        try:
            made = CsvColumns(columns, types, delimiter, bad, self._context.schema)
        except UserError as error:
            raise task_error(self._context, str(error)) from error
        return made, offset

    def _read_header(self, path: str, delimiter: str) -> tuple[list[str], int]:
        """Names of the columns and the offset after them; no names for an empty file."""
        source = FileBytes(path, 0, self._files)
        try:
            return read_header(source, delimiter, self._options.record_bytes_max)
        except ValueError as error:
            raise task_error(
                self._context, f"{path} does not begin with a record of column names: {error}"
            ) from error
        finally:
            source.close()

    def _check_columns(self, path: str, columns: list[str]) -> None:
        twice = [column for column in columns if columns.count(column) > 1]
        if twice:
            raise task_error(
                self._context,
                f"{path} has the column {twice[0]!r} twice; use header: false with columns",
            )
        beside = partition_values(path) if self._options.hive_partitioning else {}
        for column in self._options.types:
            if column not in columns and column not in beside:
                hint = nearest(column, columns) or f"its columns are {', '.join(columns[:50])}"
                raise option_error(
                    self._context, "types", f"names {column!r}, which {path} lacks; {hint}"
                )
