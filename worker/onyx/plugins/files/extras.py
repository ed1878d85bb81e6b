"""Fields added to every segment of a file: where it comes from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onyx.flow.batch import Indices, Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.mixed import Read, mixed, pieces_of
from onyx.flow.segment import Segment
from onyx.plugins.chunks import with_columns


class Extras:
    """The number of the record, and the path of the file."""

    def __init__(self, file: str, number_key: str | None, file_key: str | None) -> None:
        """A key that is None is not added."""
        self._file = file
        self._number_key = number_key
        self._file_key = file_key

    def added_to(self, read: Read, first: int) -> Read:
        """The segments with these; dicts get them in place, and columns beside them, or in the
        index of those that have their names.

        Args:
            first: the position of the first segment.
        """
        if self._number_key is None and self._file_key is None:
            return read
        return mixed(
            [(indices, self._added(each, indices + first)) for indices, each in pieces_of(read)]
        )

    def added(self, segments: Segments, first: int) -> Segments:
        """The segments of one format with these."""
        if self._number_key is None and self._file_key is None:
            return segments
        return self._added(segments, np.arange(first, first + len(segments)))

    def _added(self, segments: Segments, numbers: Indices) -> Segments:
        add = format_of(segments).choose(self._in_each, self._beside)
        return add(segments, numbers)

    def _in_each(self, segments: list[Segment], numbers: Indices) -> Segments:
        if self._number_key is not None:
            for number, segment in zip(numbers.tolist(), segments, strict=True):
                segment[self._number_key] = number
        if self._file_key is not None:
            for segment in segments:
                segment[self._file_key] = self._file
        return segments

    def _beside(self, columns: Columns, numbers: Indices) -> Segments:
        count, found = len(columns), dict[str, pa.Array]()
        if self._number_key is not None:
            found[self._number_key] = pa.array(numbers, pa.int64())
        if self._file_key is not None:
            found[self._file_key] = pa.repeat(self._file, count)
        return with_columns(columns, found)
