"""Emissions as runs: segments of one shard that follow each other, at consecutive positions.

Thousands of groups fire together, so what is kept of an emission must not be an object of its own:
a run is a list of dicts or some columns, and a position in it is an index. Runs that wait for their
trees to be complete are found by position (`SentRuns`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from onyx.codec.segments import size_bytes
from onyx.flow.batch import U64, EncodedRun, Segment, Segments, format_of, joined, part_of
from onyx.flow.columns.record_batch import Columns


class Run(NamedTuple):
    """Segments on their way out, in one format."""

    segments: Segments
    child: str | None = None
    """The only child task that they are for (late segments); None: wherever flow conditions send
    them."""
    size_bytes: int = 0
    """Their size, if that counts."""
    encoded: EncodedRun | None = None
    """Their bytes for the log (`EmittedRun`), until it has them."""
    parents: U64 | None = None
    """The root of the tree that each of them was made of, where that is known and wanted."""

    def part(self, first: int, last: int) -> Run:
        """The part from `first` to before `last`. The sizes of parts add up to that of the run."""
        count = len(self.segments)
        if first == 0 and last >= count:
            return self
        before, through = (self.size_bytes * each // count for each in (first, min(last, count)))
        parents = None if self.parents is None else self.parents[first:last]
        return Run(
            part_of(self.segments, first, last), self.child, through - before, parents=parents
        )


Placed = tuple[int, Run]
"""A run with the position of its first emission."""


def run_of(segments: Segments, child: str | None, encoded: EncodedRun | None = None) -> Run:
    """Segments for this child, or for all, with their size.

    Args:
        encoded: their bytes, if somebody has them.

    Raises:
        SegmentError: a value cannot be encoded.
    """
    if encoded is not None:
        return Run(segments, child, len(encoded[0]), encoded)
    count_bytes = format_of(segments).choose(_bytes_of_dicts, _bytes_of_columns)
    return Run(segments, child, count_bytes(segments))


def gathered(runs: Iterable[Run]) -> Iterator[Run]:
    """Runs in order, those joined that follow each other and have child and format in common, and
    no bytes."""
    for (child, _, encoded, known), alike in groupby(runs, _alike):
        each = list(alike)
        if len(each) == 1 or encoded:
            yield from each
        else:
            segments = joined([run.segments for run in each])
            size_bytes = sum(run.size_bytes for run in each)
            found = [run.parents for run in each if run.parents is not None]
            yield Run(segments, child, size_bytes, None, np.concatenate(found) if known else None)


def _alike(run: Run) -> tuple[str | None, object, bool, bool]:
    types = format_of(run.segments).types(run.segments)
    return run.child, types, run.encoded is not None, run.parents is not None


def _bytes_of_dicts(segments: list[Segment]) -> int:
    return size_bytes(segments)


def _bytes_of_columns(columns: Columns) -> int:
    return columns.size_bytes


class SentRuns:
    """What was sent, from the first emission that is not complete on."""

    def __init__(self) -> None:
        self._runs: deque[Placed] = deque()

    def add(self, first: int, run: Run) -> None:
        """A run was sent, behind all that is here."""
        self._runs.append((first, run))

    def forget(self, frontier: int) -> int:
        """Nothing before this position is needed any more; gives the bytes that went."""
        freed = 0
        while self._runs:
            first, run = self._runs[0]
            past = frontier - first
            if past < len(run.segments):
                if past > 0:
                    self._runs[0] = frontier, run.part(past, len(run.segments))
                    freed += run.part(0, past).size_bytes
                break
            freed += run.size_bytes
            self._runs.popleft()
        return freed

    def between(self, first: int, end: int) -> Iterator[Placed]:
        """What there is of positions from `first` to before `end`."""
        for start, run in self._runs:
            if start >= end:
                break
            begin = max(first, start)
            if begin < start + len(run.segments):
                yield begin, run.part(begin - start, end - start)

    def __iter__(self) -> Iterator[Placed]:
        return iter(self._runs)
