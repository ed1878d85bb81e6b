"""Reads one Parquet file, row group by row group, and no more rows at once than memory holds,
whatever its metadata says.

Any position can be read again, because the file lists the number of rows of each group. So the
state of a cursor is only the version of the file. Types are those of columns
(`flow/columns/types`), for dicts too. A row that cannot travel to another task is a bad record.

Batches of columns are cut from larger ones without a copy. A batch is decoded on the thread of the
task: another thread for each column saves no CPU, and a worker has as many tasks as cores.

The sizes in the metadata are those of the bytes in the file. A value of a dictionary is there once
and named by any number of rows, so a file of a kilobyte may decode to gigabytes. So the longest
value of each dictionary is looked at, before rows are decoded: a first row is read in the form that
keeps dictionaries, which costs a page of each column and row group. It is not done where the bytes
in the file, by what their compression can do at most, cannot become too many. Lists have no bound
of rows: one row may hold all values of its row group. Their metadata counts the values, so a row
group of which few bytes become many is refused.

Rejected: to read all columns with dictionaries. Columns of values that differ take four times as
long so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as kinds

from onyx.base.on_demand import ModuleOnDemand
from onyx.errors import Unavailable, UserError
from onyx.flow.batch import as_dicts, as_given
from onyx.flow.columns.compute import pc
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment
from onyx.plugins.files.byte_sources import named_errors
from onyx.plugins.files.extras import Extras
from onyx.plugins.files.spark_footer import SparkTypes, spark_types
from onyx.plugins.protocol import ColumnsReader, Cursor
from onyx.plugins.records import BadRecords
from onyx.plugins.segment_runs import DecodedRuns, good_runs
from onyx.storage.files import FileSystem

if TYPE_CHECKING:
    from pyarrow.parquet import ColumnChunkMetaData, ParquetFile

pq = ModuleOnDemand("pyarrow.parquet")
ROWS_AT_A_TIME = 4_096
"""The number of rows, as dicts."""
COLUMNS_ROWS_MAX = 65_536
COLUMNS_BYTES_MAX = 33_554_432
"""The size of a batch that is decoded at a time, by the average of a row in the file."""
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


class ParquetRows:
    """The rows of an open file as columns, in batches."""

    def __init__(
        self, path: str, position: int, files: FileSystem, wanted: Collection[str] | None = None
    ) -> None:
        """
        Args:
            position: of the first row.
            wanted: columns to read, as far as the file has them; None means all.

        Raises:
            Unavailable: the file cannot be read now.
            UserError: it is not Parquet, or a segment cannot hold what Spark has written.
        """
        self._path = path
        self._files = files
        self._bytes = files.open(path, ahead=False)
        try:
            with named_errors(path):
                # Objects are read by few large ranges, those of a row group at a time.
                self._file = pq.ParquetFile(
                    self._bytes,
                    pre_buffer=files.remote(path),
                    # Nanoseconds, as which times of 96 bits are read otherwise, end in 2262.
                    coerce_int96_timestamp_unit="us",
                )
            self._sizes = Sizes(path, self._file, self._bytes)
            self._of_spark = self._found_types()
        except BaseException:
            self._bytes.close()
            raise
        names = self._file.schema_arrow.names
        self._names = None if wanted is None else [each for each in names if each in wanted]
        self.rows: int = self._file.metadata.num_rows
        self.position = position
        self._batches: Iterator[pa.RecordBatch] | None = None

    def next(self, rows_max: int) -> Columns | None:
        """The next batch, of at most so many rows; None at the end. After an error that passes, the
        same position is read again.

        Raises:
            Unavailable: the file cannot be read now.
            UserError: it is damaged, few bytes of it would become too many, or a segment cannot
                hold a column.
        """
        if self._batches is None:
            self._batches = self._from(self.position, rows_max)
        try:
            with named_errors(self._path):
                batch = next(self._batches, None)
        except Unavailable:
            self._batches = None
            raise
        if batch is None:
            return None
        self.position += batch.num_rows
        with named_errors(self._path):  # an index may lead beyond its dictionary
            try:
                found = batch if self._of_spark is None else self._of_spark.restored(batch)
                return Columns.of(found)
            except UserError as error:
                raise UserError(f"{self._path}: {error}") from error

    def _found_types(self) -> SparkTypes | None:
        try:
            return spark_types(self._file.schema_arrow)
        except UserError as error:
            raise UserError(f"{self._path}: {error}") from error

    def rows_at_a_time(self, wanted: int) -> int:
        """A multiple of `wanted`, or less if memory does not allow that."""
        metadata = self._file.metadata
        groups = range(metadata.num_row_groups)
        size = sum(metadata.row_group(each).total_byte_size for each in groups)
        row_bytes = max(1, size // max(1, self.rows))
        most: int = min(COLUMNS_ROWS_MAX, COLUMNS_BYTES_MAX // row_bytes)
        return most // wanted * wanted if most >= wanted else max(1, most)

    def version(self) -> str | None:
        """Version of the file."""
        return self._files.version(self._path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._bytes.close()

    def _from(self, position: int, rows_max: int) -> Iterator[pa.RecordBatch]:
        first = 0
        for groups, rows in self._runs(rows_max):
            at, first = first, first + rows
            if first <= position:
                continue
            most = min(self._sizes.rows_most(each, rows_max, self._names) for each in groups)
            batches = self._file.iter_batches(
                most, row_groups=groups, columns=self._names, use_threads=False
            )
            for batch in batches:
                before = max(0, position - at)
                if before < batch.num_rows:
                    yield batch.slice(before)
                at += batch.num_rows

    def _runs(self, rows_max: int) -> Iterator[tuple[list[int], int]]:
        """Row groups that are read together: small ones up to so many rows, large ones alone."""
        metadata, groups, total = self._file.metadata, list[int](), 0
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            if groups and total + rows > rows_max:
                yield groups, total
                groups, total = [], 0
            groups.append(group)
            total += rows
        if groups:
            yield groups, total


def rows_of(path: str, files: FileSystem) -> int:
    """How many rows a file has, by its footer. Raises as `ParquetRows`."""
    opened = ParquetRows(path, 0, files)
    opened.close()
    return opened.rows


class ParquetReader(ColumnsReader):
    """An open file (`protocol.Reader`, `protocol.ColumnsReader`)."""

    def __init__(self, rows: ParquetRows, extras: Extras, bad: BadRecords) -> None:
        self._rows = rows
        self._extras = extras
        self._bad = bad
        self._chunks = DecodedRuns()

    def read(self, segments_max: int) -> list[Segment]:
        """Rows of the current batch. Raises like `ParquetRows.next`."""
        if not len(self._chunks):
            self._fill(ROWS_AT_A_TIME, dicts=True)
        return as_dicts(self._chunks.take(segments_max))

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """What `read` gives, as columns, in the types of the file: the engine casts them to the
        schema."""
        if not len(self._chunks) and segments_max > 0:
            self._fill(self._rows.rows_at_a_time(segments_max), dicts=False)
        return as_given(self._chunks.take(segments_max))

    def ready(self) -> int:
        """How many segments are decoded."""
        return len(self._chunks)

    def exhausted(self) -> bool:
        """Whether the last row was read."""
        return not len(self._chunks) and self._rows.position >= self._rows.rows

    def cursor(self, position: int) -> Cursor:
        """The position and the version of the file: the row groups lead to any row."""
        return Cursor(position, self._rows.version())

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    def _fill(self, rows_max: int, dicts: bool) -> None:
        first = self._rows.position
        columns = self._rows.next(rows_max)
        if columns is None:
            return

        def bad(index: int, reason: str, row: str) -> Segment:
            return self._bad.segment(first + index, reason, row)

        for run in good_runs(columns, bad, dicts):
            self._chunks.append(self._extras.added(run, first))
            first += len(run)


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
