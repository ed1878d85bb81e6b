"""Fields added to every segment of a file: where it comes from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onyx.flow.columns import Columns
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

    def added(self, columns: Columns, first: int) -> Columns:
        """The columns with these beside them, or in the place of those that have their names."""
        count, found = len(columns), dict[str, pa.Array]()
        if self._number_key is not None:
            found[self._number_key] = pa.array(np.arange(first, first + count, dtype=np.int64))
        if self._file_key is not None:
            found[self._file_key] = pa.repeat(self._file, count)
        return with_columns(columns, found)
