"""Columns of roots or ids, of which those that count up by one are no arrays.

What an input reads has consecutive roots and ids, and keeps them until a filter or a fan-out takes
the batch apart. Until then a column is its first number and its length. So what is done with it
costs the same however many segments there are: sending, acking, completing, remembering.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
Chosen = NDArray[np.intp] | NDArray[np.bool_] | Sequence[int]
"""Indices, or a mask."""

RUN_MIN = 64
"""A shorter run is put into one array with its neighbours, if it has any."""


class Run(msgspec.Struct, frozen=True):
    """`count` consecutive numbers from `first` on, all below 2**64. Indexing gives a run for a
    slice, and an array for whatever else chooses several."""

    first: int
    count: int

    @property
    def end(self) -> int:
        """The number behind the last one."""
        return self.first + self.count

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, chosen: int) -> int: ...
    @overload
    def __getitem__(self, chosen: slice) -> Run: ...
    @overload
    def __getitem__(self, chosen: Chosen) -> U64: ...
    def __getitem__(self, chosen: int | slice | Chosen) -> int | Run | U64:
        if isinstance(chosen, slice):
            start, stop, step = chosen.indices(self.count)
            assert step == 1, "a run has no gaps"
            return Run(self.first + start, max(0, stop - start))
        if isinstance(chosen, int):
            return self.first + range(self.count)[chosen]
        indices = np.asarray(chosen)
        if indices.dtype == np.bool_:
            indices = indices.nonzero()[0]
        numbers: U64 = indices.astype(np.uint64)
        numbers += np.uint64(self.first)
        return numbers

    def tolist(self) -> list[int]:
        """The numbers one by one."""
        return list(range(self.first, self.end))

    def array(self) -> U64:
        """The numbers as an array that may be written to."""
        return np.arange(self.first, self.end, dtype=np.uint64)


Numbers = U64 | Run
"""A column of roots or ids."""

NONE = Run(0, 0)
"""No number."""


def array_of(numbers: Numbers) -> U64:
    """The numbers as an array, which must not be written to."""
    return numbers.array() if isinstance(numbers, Run) else numbers


def is_increasing(numbers: NDArray[Any]) -> bool:
    """Whether each is more than the one before."""
    return int(np.count_nonzero(numbers[1:] > numbers[:-1])) >= len(numbers) - 1


def as_run(numbers: Numbers) -> Run | None:
    """The numbers as a run, if they follow one another."""
    if isinstance(numbers, Run):
        return numbers
    count = len(numbers)
    if count == 0 or int(numbers[-1]) - int(numbers[0]) != count - 1 or not is_increasing(numbers):
        return None
    return Run(int(numbers[0]), count)


def taken(numbers: Numbers, chosen: Chosen) -> U64:
    """The numbers at these indices."""
    return numbers[chosen] if isinstance(numbers, Run) else numbers[np.asarray(chosen)]


def joined(columns: Sequence[Numbers]) -> Numbers:
    """One column of several: a run if each of them goes on where the one before ends."""
    if len(columns) == 1:
        return columns[0]
    if not columns:
        return NONE
    if follow(columns):
        first, last = columns[0], columns[-1]
        assert isinstance(first, Run)
        assert isinstance(last, Run)
        return Run(first.first, last.end - first.first)
    return np.concatenate([array_of(each) for each in columns])


def follow(columns: Sequence[Numbers]) -> bool:
    """Whether all are runs, each of which goes on where the one before ends."""
    end: int | None = None
    for each in columns:
        if not isinstance(each, Run) or end not in (None, each.first):
            return False
        end = each.end
    return True


def distinct(columns: Iterable[Numbers]) -> list[Numbers]:
    """Columns that increase, with the numbers of these, each once in a run and once in an array."""
    runs: list[Run] = []
    arrays: list[U64] = []
    for each in columns:
        if isinstance(each, Run):
            runs.append(each)
        else:
            arrays.append(each)
    found: list[Numbers] = list(_united(runs))
    if arrays:
        found.append(np.unique(np.concatenate(arrays)))
    return found


def _united(runs: Iterable[Run]) -> list[Run]:
    found: list[Run] = []
    for each in sorted(runs, key=lambda run: run.first):
        if found and each.first <= found[-1].end:
            first = found[-1].first
            found[-1] = Run(first, max(found[-1].end, each.end) - first)
        elif len(each):
            found.append(each)
    return found


def gathered(columns: Iterable[Numbers]) -> list[Numbers]:
    """Few columns of many, with the same numbers in the same order: long runs stay runs, and all
    that is between two of them is one array."""
    found: list[Numbers] = []
    between: list[Numbers] = []
    for each in _merged(columns):
        if isinstance(each, Run) and len(each) >= RUN_MIN:
            _put(found, between)
            found.append(each)
        else:
            between.append(each)
    _put(found, between)
    return found


def _put(found: list[Numbers], between: list[Numbers]) -> None:
    if between:
        found.append(joined(between))
        between.clear()


def _merged(columns: Iterable[Numbers]) -> Iterable[Numbers]:
    """Runs as long as they can be; nothing that is empty."""
    run: Run | None = None
    for each in columns:
        if not len(each):
            continue
        if isinstance(each, Run) and run is not None and each.first == run.end:
            run = Run(run.first, run.count + each.count)
            continue
        if run is not None:
            yield run
        run = each if isinstance(each, Run) else None
        if run is None:
            yield each
    if run is not None:
        yield run
