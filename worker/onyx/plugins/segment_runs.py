"""A queue of segments in dicts and in columns: what a reader has decoded, and nobody has taken
yet, in order.

A reader of columns decodes in blocks of its own size, and the engine asks for another one. So runs
are kept as they came, cut without a copy where somebody reads, and neighbours of the same types are
joined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from onyx.codec.refusals import refused_rows, text_of
from onyx.flow.batch import Segments, as_dicts, format_of, joined, part_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.segment import Segment

_MERGED_MAX = 1_024
"""Dicts of short runs that become one run; more would make it slow to drop the first ones."""


class SegmentRuns:
    """The oldest segment has index 0."""

    def __init__(self) -> None:
        self._runs: deque[Segments] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, run: Segments) -> None:
        """Add the newest segments."""
        if not len(run):
            return
        self._count += len(run)
        last = self._runs[-1] if self._runs else None
        if isinstance(run, list) and isinstance(last, list) and len(last) < _MERGED_MAX:
            last.extend(run)
        else:
            self._runs.append(run[:] if isinstance(run, list) else run)

    def drop(self, count: int) -> None:
        """Remove the oldest segments."""
        assert count <= self._count, "nobody drops what is not there"
        self._count -= count
        while count:
            first = self._runs[0]
            if len(first) > count:
                self._runs[0] = part_of(first, count, len(first))
                return
            count -= len(first)
            self._runs.popleft()

    def between(self, first: int, count: int) -> list[Segments]:
        """At most `count` segments from an index on."""
        return list(self.cut(first, first + count))

    def clear(self) -> None:
        """Remove all."""
        self._runs.clear()
        self._count = 0

    def cut(self, first: int, last: int) -> Iterator[Segments]:
        """The segments from `first` to before `last`, run by run."""
        begin = 0
        for run in self._runs:
            end = begin + len(run)
            if begin >= last:
                return
            if max(begin, first) < min(end, last):
                yield part_of(run, max(0, first - begin), min(last, end) - begin)
            begin = end


class DecodedRuns(SegmentRuns):
    """Segments in the order in which they were appended."""

    def take(self, count_max: int) -> Segments:
        """Remove the next segments of one kind, at most so many."""
        taken = first_alike(self.cut(0, count_max))
        self.drop(len(taken))
        return taken


def first_alike(runs: Iterable[Segments]) -> Segments:
    """The runs at the start that are dicts, or columns of the same types."""
    found: list[Segments] = []
    of_first: pa.Schema | None = None
    for run in runs:
        types = format_of(run).types(run)
        if found and types != of_first:
            break
        of_first = types
        found.append(run)
    return joined(found) if found else []


def gathered(runs: Sequence[Segments]) -> list[Segments]:
    """Neighbours in dicts as one run, without the empty ones."""
    found: list[Segments] = []
    for run in runs:
        last = found[-1] if found else None
        if isinstance(run, list) and isinstance(last, list):
            last.extend(run)
        elif len(run):
            found.append(run[:] if isinstance(run, list) else run)
    return found


def good_runs(
    columns: Columns, bad: Callable[[int, str, str], Segment], dicts: bool = False
) -> list[Segments]:
    """The rows in order, with a segment in the place of each that cannot be one.

    Args:
        bad: makes it of the index of the row, the reason, and the row as text (`BadRecords`).
        dicts: whether to make dicts of the others.
    """
    runs: list[Segments] = []
    first = 0
    for index, error in refused_rows(columns):
        runs += [columns.slice(first, index), [bad(index, str(error), text_of(columns, index))]]
        first = index + 1
    runs.append(columns.slice(first, len(columns)) if first else columns)
    return [as_dicts(run) for run in runs] if dicts else runs


def with_columns(columns: Columns, added: Mapping[str, pa.Array]) -> Columns:
    """The columns with others beside them, or in the place of those that have their names."""
    batch = columns.record_batch
    for name, values in added.items():
        index = batch.schema.get_field_index(name)
        if index >= 0:
            batch = batch.set_column(index, name, values)
        elif batch.schema.names:
            batch = batch.append_column(name, values)
        else:
            batch = pa.RecordBatch.from_arrays([values], names=[name])
    return Columns(batch) if added else columns
