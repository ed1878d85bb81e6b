"""How many rows of a Parquet file may be decoded at once, whatever its metadata says.

The sizes in the metadata are those of the bytes in the file. A value of a dictionary is there once
and named by any number of rows, so a file of a kilobyte may decode to gigabytes. So the longest
value of each dictionary is looked at, before rows are decoded: a first row is read in the form that
keeps dictionaries, which costs a page of each column and row group. It is not done where the bytes
in the file, by what their compression can do at most, cannot become too many.

Lists have no bound of rows: one row may hold all values of its row group. Their metadata counts the
values, so a row group of which few bytes become many is refused.

Rejected: to read all columns with dictionaries. Columns of values that differ take four times as
long so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow.types as kinds

from onyx.errors import UserError
from onyx.flow.columns.compute import pc
from onyx.plugins.parts.arrow import pq

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData, ParquetFile

EXPANDED_BYTES_MAX = 268_435_456
"""The size that the rows which are decoded at once may have because of dictionaries."""
LIST_EXPANSION_MAX = 1_000
"""How many times its bytes a column of lists may become, if it is larger than that."""
PROBE_BYTES = 1_048_576
"""What is read of a column at a time to find its dictionary, which is rarely longer."""
LOOK_BYTES = 4_096
_RATIOS = {"UNCOMPRESSED": 1, "SNAPPY": 32, "LZ4": 256, "LZ4_RAW": 256, "GZIP": 1_040}
"""How many bytes one byte becomes at most; others have no bound."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


class Sizes:
    """What is known of the values of one open file."""

    def __init__(self, path: str, file: ParquetFile, source: object) -> None:
        """The bytes of the file are `source`, which the file reads on the same thread."""
        self._path = path
        self._file = file
        self._source = source
        self._dictionaries: ParquetFile | None = None
        self._looks: ParquetFile | None = None

    def rows_most(self, group: int, rows_max: int, names: Sequence[str] | None) -> int:
        """How many rows of a row group may be decoded at once: at least one.

        Raises:
            UserError: its lists would become too large.
            OSError: its metadata is damaged.
        """
        self._look_at(group)
        metadata, schema = self._file.metadata.row_group(group), self._file.schema
        rows = max(1, min(rows_max, metadata.num_rows))
        row_bytes = 0
        for at in range(metadata.num_columns):
            chunk, described = metadata.column(at), schema.column(at)
            if names is not None and chunk.path_in_schema.split(".")[0] not in names:
                continue
            width = self._width(group, at, chunk, rows)
            if described.max_repetition_level:
                self._check_lists(chunk, width)
                width *= -(-chunk.num_values // max(1, metadata.num_rows))
            row_bytes += width
        return max(1, min(rows_max, EXPANDED_BYTES_MAX // max(1, row_bytes)))

    def _width(self, group: int, at: int, chunk: ColumnChunkMetaData, rows: int) -> int:
        """What one value may take because of a dictionary; 0 if that matters for none."""
        described = self._file.schema.column(at)
        if chunk.physical_type in _WIDTHS:
            return _WIDTHS[chunk.physical_type]
        if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
            return int(described.length)
        ratio = _RATIOS.get(chunk.compression)
        values = max(rows, chunk.num_values if described.max_repetition_level else 0)
        if ratio is not None:
            most = int(chunk.total_compressed_size) * ratio
            if most * values <= EXPANDED_BYTES_MAX:
                return most
        return self._longest(group, at)

    def _look_at(self, group: int) -> None:
        """Read no row of a row group. Where the metadata of its columns is damaged, that raises; to
        show that metadata, as an object of Python, would end the process."""
        if self._looks is None:
            self._looks = pq.ParquetFile(
                self._source, metadata=self._file.metadata, buffer_size=LOOK_BYTES, pre_buffer=False
            )
        # Its own method of this name takes no 0.
        next(self._looks.reader.iter_batches(0, row_groups=[group], use_threads=False), None)

    def _longest(self, group: int, at: int) -> int:
        """The size of the longest value in the dictionary of a column; 0 if there is none."""
        path = self._file.schema.column(at).path
        if self._dictionaries is None:
            self._dictionaries = pq.ParquetFile(
                self._source,
                metadata=self._file.metadata,
                read_dictionary=_texts(self._file),
                buffer_size=PROBE_BYTES,
                pre_buffer=False,
                arrow_extensions_enabled=False,
            )
        batches = self._dictionaries.iter_batches(
            1, row_groups=[group], columns=[path], use_threads=False
        )
        first = next(batches, None)
        if first is None:
            return 0
        column = first.column(0)
        while not kinds.is_dictionary(column.type):
            if kinds.is_struct(column.type):
                column = column.field(0)
            elif kinds.is_nested(column.type):
                column = column.values
            else:
                return 0
        longest = pc.max(pc.binary_length(column.dictionary)).as_py()
        return int(longest or 0)

    def _check_lists(self, chunk: ColumnChunkMetaData, width: int) -> None:
        size = chunk.num_values * max(1, width)
        if size > max(EXPANDED_BYTES_MAX, LIST_EXPANSION_MAX * chunk.total_compressed_size):
            raise UserError(
                f"{self._path}: column {chunk.path_in_schema} has lists of {chunk.num_values:,} "
                f"values that {chunk.total_compressed_size:,} bytes become, {size:,} bytes or "
                f"more; {EXPANDED_BYTES_MAX:,} may be in one row group, or {LIST_EXPANSION_MAX} "
                "times its bytes: write the file with smaller row groups"
            )


def _texts(file: ParquetFile) -> list[str]:
    """The columns whose values have any length."""
    columns = (file.schema.column(at) for at in range(len(file.schema)))
    return [each.path for each in columns if each.physical_type == "BYTE_ARRAY"]
