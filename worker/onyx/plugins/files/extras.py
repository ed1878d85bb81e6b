"""Fields added to every segment of a file: where it comes from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onyx.flow.columns import Columns
from onyx.flow.segment import Segment


class Extras:
    """The number of the record, and the path of the file."""

    def __init__(self, file: str, number_key: str | None, file_key: str | None) -> None:
        """A key that is None is not added."""
        self._file = file
        self._number_key = number_key
        self._file_key = file_key

    def add(self, segments: list[Segment], first: int) -> None:
        """Add them; `first` is the position of the first segment."""
        if self._number_key is not None:
            for number, segment in enumerate(segments, first):
                segment[self._number_key] = number
        if self._file_key is not None:
            for segment in segments:
                segment[self._file_key] = self._file

    def added(self, columns: Columns, first: int) -> Columns:
        """The columns with these beside them, or in the place of those that have their names."""
        batch, count = columns.record_batch, len(columns)
        if self._number_key is not None:
            numbers = pa.array(np.arange(first, first + count, dtype=np.int64))
            batch = _set(batch, self._number_key, numbers)
        if self._file_key is not None:
            batch = _set(batch, self._file_key, pa.repeat(self._file, count))
        return columns if batch is columns.record_batch else Columns(batch)


def _set(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    if index >= 0:
        return batch.set_column(index, name, values)
    if not batch.schema.names:
        return pa.RecordBatch.from_arrays([values], names=[name])
    return batch.append_column(name, values)
