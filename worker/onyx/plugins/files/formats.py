"""The formats of files: which one a file has, and what splits it into records."""

from __future__ import annotations

from pathlib import PurePath

from onyx.errors import UserError
from onyx.model.report import nearest
from onyx.plugins.files.byte_sources import COMPRESSED, FileBytes
from onyx.plugins.files.csv_columns import CsvColumns
from onyx.plugins.files.csv_records import CsvRecords, read_header
from onyx.plugins.files.hive import partition_values
from onyx.plugins.files.line_columns import JsonLineColumns, TextColumns
from onyx.plugins.files.line_records import JsonLineRecords, TextRecords
from onyx.plugins.files.options import InputOptions
from onyx.plugins.json_columns import JsonColumns
from onyx.plugins.options import option_error, task_error
from onyx.plugins.protocol import PluginContext
from onyx.plugins.records import BadRecords, Records
from onyx.storage.files import Files

_BY_SUFFIX = {
    ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet",
    ".txt": "text", ".log": "text", ".tsv": "csv",
}  # fmt: skip


class Formats:
    """The formats of the files of one input."""

    def __init__(
        self,
        context: PluginContext,
        options: InputOptions,
        files: Files,
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
        suffix = _suffix(path)
        if suffix not in _BY_SUFFIX:
            raise option_error(
                self._context, "format", f"is missing, and the name of {path} does not tell it"
            )
        return _BY_SUFFIX[suffix]

    def records(self, path: str, bad: BadRecords) -> tuple[Records, int]:
        """What splits a file into records, and the offset of its first record."""
        kind = self.name(path)
        if kind == "jsonl":
            known = self._columns
            return (JsonLineRecords(bad) if known is None else JsonLineColumns(known, bad)), 0
        if kind == "text":
            return (TextRecords(bad) if self._columns is None else TextColumns(bad)), 0
        options = self._options
        delimiter = options.delimiter or ("\t" if _suffix(path) == ".tsv" else ",")
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


def _suffix(path: str) -> str:
    """The suffix of the format; a suffix of the compression after it is left out."""
    name = PurePath(path)
    if name.suffix.lower() in COMPRESSED:
        name = name.with_suffix("")
    return name.suffix.lower()
