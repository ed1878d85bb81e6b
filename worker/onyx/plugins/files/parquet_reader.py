"""Reads one Parquet file as segments, row group by row group.

Any position can be read again, because the file lists the number of rows of each group. So the
state of a cursor is only the version of the file. Values keep their types (date, time, Decimal,
timedelta). A timestamp without a time zone is taken to be UTC, and what is finer than
microseconds is cut off. A row that cannot travel to another task is a bad record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from onyx.codec.refusals import refused
from onyx.errors import Unavailable
from onyx.flow.segment import Segment
from onyx.plugins.files.byte_sources import named_errors
from onyx.plugins.files.file_systems import FileSystem
from onyx.plugins.files.text_reader import Extras
from onyx.plugins.protocol import Cursor
from onyx.plugins.records import BadRecords

ROWS_AT_A_TIME = 4_096


class ParquetReader:
    """An open file (`protocol.Reader`)."""

    def __init__(
        self, path: str, position: int, extras: Extras, files: FileSystem, bad: BadRecords
    ) -> None:
        """Raises Unavailable when the file cannot be read, UserError when it is not Parquet."""
        self._path = path
        self._files = files
        self._extras = extras
        self._bad = bad
        self._position = position
        self._bytes = files.open(path, ahead=False)
        try:
            with named_errors(path):
                # Objects are read by few large ranges, those of a row group at a time.
                self._file = pq.ParquetFile(self._bytes, pre_buffer=True)
        except BaseException:
            self._bytes.close()
            raise
        self._rows: int = self._file.metadata.num_rows
        self._segments: list[Segment] = []
        self._taken = 0
        self._batches = self._read_from(position)

    def read(self, segments_max: int) -> list[Segment]:
        """Rows of the current batch; after an error that passes, the same position is read
        again."""
        if self._taken == len(self._segments):
            try:
                with named_errors(self._path):
                    self._segments = next(self._batches, [])
            except Unavailable:
                self._batches = self._read_from(self._position)
                raise
            self._taken = 0
            for index, error in refused(self._segments):
                raw = json.dumps(self._segments[index], default=str)
                self._segments[index] = self._bad.segment(self._position + index, str(error), raw)
            self._extras.add(self._segments, self._position)
        segments = self._segments[self._taken : self._taken + segments_max]
        self._taken += len(segments)
        self._position += len(segments)
        return segments

    def exhausted(self) -> bool:
        """Whether the last row was read."""
        return self._position >= self._rows

    def cursor(self, position: int) -> Cursor:
        """The position and the version of the file: the row groups lead to any row."""
        return Cursor(position, self._files.version(self._path))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._bytes.close()

    def _read_from(self, position: int) -> Iterator[list[Segment]]:
        skipped = 0
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if skipped + rows > position:
                for batch in self._file.iter_batches(ROWS_AT_A_TIME, row_groups=[group]):
                    before = max(0, position - skipped)
                    if before < batch.num_rows:
                        yield _travelling(batch.slice(before)).to_pylist()
                    skipped += batch.num_rows
            else:
                skipped += rows


def _travelling(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns of types that Python lacks, as types that it has."""
    kinds = [_travelling_type(field.type) for field in batch.schema]
    if kinds == batch.schema.types:
        return batch
    columns = [
        column.cast(kind, safe=False) for column, kind in zip(batch.columns, kinds, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _travelling_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        # Of this name Python has a zone that compares and travels faster than any other.
        return pa.timestamp("us", tz="+00:00" if kind.tz in (None, "UTC") else kind.tz)
    if pa.types.is_time64(kind):
        return pa.time64("us")
    return pa.duration("us") if pa.types.is_duration(kind) else kind
