"""Fields added to every segment of a file: where it comes from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onyx.flow.batch import Indices
from onyx.flow.columns.record_batch import Columns
from onyx.flow.mixed import Piece, Read, mixed, pieces_of
from onyx.flow.segment import Segment
from onyx.plugins.chunks import with_columns


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

    def added_to(self, read: Read, first: int) -> Read:
        """The segments with these; dicts get them in place."""
        made: list[Piece] = []
        for indices, segments in pieces_of(read):
            if isinstance(segments, Columns):
                made.append((indices, self._beside(segments, indices + first)))
                continue
            for index, segment in zip(indices.tolist(), segments, strict=True):
                self.add([segment], first + index)
            made.append((indices, segments))
        return mixed(made)

    def added(self, columns: Columns, first: int) -> Columns:
        """The columns with these beside them, or in the index of those that have their names."""
        return self._beside(columns, np.arange(first, first + len(columns)))

    def _beside(self, columns: Columns, numbers: Indices) -> Columns:
        count, found = len(columns), dict[str, pa.Array]()
        if self._number_key is not None:
            found[self._number_key] = pa.array(numbers, pa.int64())
        if self._file_key is not None:
            found[self._file_key] = pa.repeat(self._file, count)
        return with_columns(columns, found)
