"""Fields added to every segment of a file: where it comes from, and what its folders say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from onyx.flow.batch import Indices, Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.mixed import Read, mixed, pieces_of
from onyx.flow.segment import Segment
from onyx.plugins.segment_runs import with_columns


class Extras:
    """The number of the record, the path of the file, and keys that all of its segments have."""

    def __init__(
        self,
        file: str,
        number_key: str | None = None,
        file_key: str | None = None,
        same: Mapping[str, pa.Scalar] | None = None,
    ) -> None:
        """A key that is None is not added. `same`: of all segments; they stand in the place of what
        the file itself has under these keys."""
        self._number_key = number_key
        self._same = dict(same or {})
        if file_key is not None:
            self._same[file_key] = pa.scalar(file)
        self._values = {key: value.as_py() for key, value in self._same.items()}
        self._none = number_key is None and not self._same

    def added_to(self, read: Read, first: int) -> Read:
        """The segments with these; dicts get them in place, and columns beside them, or in the
        index of those that have their names.

        Args:
            first: the position of the first segment.
        """
        if self._none:
            return read
        return mixed(
            [(indices, self._added(each, indices + first)) for indices, each in pieces_of(read)]
        )

    def added(self, segments: Segments, first: int) -> Segments:
        """The segments of one format with these."""
        if self._none:
            return segments
        return self._added(segments, np.arange(first, first + len(segments)))

    def _added(self, segments: Segments, numbers: Indices) -> Segments:
        add = format_of(segments).choose(self._in_each, self._beside)
        return add(segments, numbers)

    def _in_each(self, segments: list[Segment], numbers: Indices) -> Segments:
        if self._number_key is not None:
            for number, segment in zip(numbers.tolist(), segments, strict=True):
                segment[self._number_key] = number
        for key, value in self._values.items():
            for segment in segments:
                segment[key] = value
        return segments

    def _beside(self, columns: Columns, numbers: Indices) -> Segments:
        count, found = len(columns), dict[str, pa.Array]()
        if self._number_key is not None:
            found[self._number_key] = pa.array(numbers, pa.int64())
        for key, value in self._same.items():
            found[key] = pa.repeat(value, count)
        return with_columns(columns, found)
