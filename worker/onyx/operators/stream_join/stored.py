"""What is stored of one side: parts, each twice as large as the next, merged as they grow.

A batch becomes a part of its own, and two parts become one when the older is not twice as large. So
a row is moved a few times, and there are a few parts to look into, whatever is stored. Rows that
nobody needs any more go when their part is merged, or when they are most of it.

A part has rows that nobody changes, in the order of key and time. Which of them a batch meets is
found by binary searches for the whole batch at once: for the hash of the key, then for the bounds
of time among the rows with that hash. No hash table is built or kept, so a part can lie in a file
that is mapped into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from onyx.flow.arrays import U64, Indices, Mask
from onyx.operators.stream_join.keyed_rows import KeyedRows, same_keys, together
from onyx.operators.stream_join.spans import Reach, Times

GROWS = 2
Gone = Callable[[KeyedRows], Mask]
"""Which rows are of no use any more, of rows in order (`in_order`)."""
PART_BYTES_MAX = 1 << 30
"""Parts are not merged into a larger one: a column holds 2 GiB of text."""


NONE = -1
PAIRS_AT_ONCE = 100_000
"""Pairs of rows that are looked at together; of a single row there may be more."""
_BEGIN = np.zeros(1, np.intp)
Keep = Callable[[KeyedRows, Indices], tuple[KeyedRows, Indices]]
"""Gives the same rows and numbers, from where they do not need memory."""


class StoredSide:
    """The rows of one side."""

    def __init__(self, gone: Gone, keep: Keep | None = None, memory_rows_max: int = 0) -> None:
        """
        Args:
            gone: says which rows nobody needs.
            keep: moves large parts out of memory; None: all stay.
            memory_rows_max: about so many rows stay in memory; with `keep`.
        """
        self._gone = gone
        self._keep = keep
        self._large = max(1, memory_rows_max // 4)
        self._parts: list[StoredPart] = []
        self.dropped = 0
        """Rows that have gone because nobody needs them."""

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return sum(int(each.rows.segments.nbytes) for each in self.parts)

    @property
    def spilled(self) -> int | None:
        """Rows that are not in memory; None: all are."""
        return None if self._keep is None else sum(len(each) for each in self.parts if each.kept)

    @property
    def parts(self) -> tuple[StoredPart, ...]:
        """All parts, oldest first; none of them is ever changed."""
        return tuple(self._parts)

    def add(self, rows: KeyedRows) -> None:
        """More rows, in order (`in_order`)."""
        if not len(rows):
            return
        assert len(rows.hashes) == len(rows.times) == len(rows.where), "columns of the same rows"
        self._parts.append(self._part(rows))
        while self._merge_last():
            pass

    def _merge_last(self) -> bool:
        """Merge the newest part with the one before that is like it, if that is not much larger."""
        *before, last = self._parts
        for at in reversed(range(len(before))):
            if before[at].rows.form != last.rows.form:
                continue
            if len(before[at]) >= GROWS * len(last) or _too_large(before[at], last):
                return False
            merged = self._without_gone(in_order(together([before[at].rows, last.rows])))
            self._parts = [*before[:at], *before[at + 1 :]]
            self._parts += [merged] if merged is not None else []
            return merged is not None
        return False

    def drop(self, time: int) -> None:
        """Rows of a lower time are gone: leave out parts of which they are half."""
        rows = len(self)
        kept: list[StoredPart | None] = []
        for part in self._parts:
            if part.is_before(time):
                self.dropped += len(part)
                continue
            kept.append(self._without_gone(part.rows) if part.is_half_before(time) else part)
        self._parts = [each for each in kept if each is not None]
        assert len(self) <= rows, "nothing comes back"

    def forget(self, shard: int) -> None:
        """All rows of a shard go."""
        kept: list[StoredPart] = []
        for part in self._parts:
            others = part.rows.shards != shard
            if others.all():
                kept.append(part)
            elif others.any():
                kept.append(self._part(part.rows.take(np.flatnonzero(others))))
        self._parts = kept

    def _without_gone(self, rows: KeyedRows) -> StoredPart | None:
        gone = self._gone(rows)
        if gone.any():
            self.dropped += int(gone.sum())
            rows = rows.take(np.flatnonzero(~gone))
        return self._part(rows) if len(rows) else None

    def _part(self, rows: KeyedRows) -> StoredPart:
        keep = self._keep if len(rows) >= self._large else None
        return StoredPart(rows if keep is None and not rows.sparse else rows.packed(), keep)

    def between(self, first: int, end: int) -> Iterator[KeyedRows]:
        """Rows whose time is not below the first and below the end."""
        for part in self._parts:
            chosen = part.between(first, end)
            if len(chosen):
                yield part.rows.take(chosen)


def _too_large(one: StoredPart, other: StoredPart) -> bool:
    return sum(int(each.rows.segments.nbytes) for each in (one, other)) > PART_BYTES_MAX


class Pairs(NamedTuple):
    """Rows that meet."""

    mine: Indices
    """Indices in the batch."""
    others: Indices
    """Indices in the part, in the same order."""


class StoredPart:
    """Rows of one side."""

    def __init__(self, rows: KeyedRows, keep: Keep | None = None) -> None:
        """
        Args:
            rows: in order (`in_order`).
            keep: moves them to where they are to stay; None: they stay in memory.
        """
        self._by_time: Indices | None = None
        self.kept = keep is not None
        if keep is not None:
            rows, self._by_time = keep(rows, _in_time(rows))
        self.rows = rows
        assert len(rows), "a part has rows"
        self._first, self._last = int(rows.times.min()), int(rows.times.max())
        self._median: int | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def is_before(self, time: int) -> bool:
        """Whether all rows have a lower time."""
        return self._last < time

    def is_half_before(self, time: int) -> bool:
        """Whether half of the rows have a lower time."""
        if time <= self._first:
            return False
        if self._median is None:
            middle = (len(self) - 1) // 2
            self._median = int(np.partition(self.rows.times, middle)[middle])
        return self._median < time

    def between(self, first: int, end: int) -> Indices:
        """Rows whose time is not below the first and below the end, in the order of time."""
        if self._by_time is None:
            self._by_time = _in_time(self.rows)
        bounds = np.searchsorted(self.rows.times, (first, end), sorter=self._by_time)
        return self._by_time[slice(*bounds.tolist())]

    def pairs(self, mine: KeyedRows, reach: Reach) -> Iterator[Pairs]:
        """The rows here that rows of the other side meet, some at a time.

        Args:
            reach: the times here that those rows meet.
        """
        firsts, ends = self._bounds(mine, reach)
        counts = ends - firsts
        met = np.flatnonzero(counts)
        for some in _cut(met, counts[met]):
            many = counts[some]
            i = np.repeat(some, many)
            starts = np.cumsum(many) - many
            j = np.arange(len(i)) + np.repeat(firsts[some] - starts, many)
            same = same_keys(mine, i, self.rows, j)
            yield Pairs(i, j) if same is None else Pairs(i[same], j[same])

    def meets(self, mine: KeyedRows, reach: Reach) -> Mask:
        """Which rows of the other side meet any row here."""
        found = np.zeros(len(mine), np.bool_)
        for i, _ in self.pairs(mine, reach):
            found[i] = True
        return found

    def latest(self, mine: KeyedRows, reach: Reach) -> Indices:
        """For each row of the other side the latest one here within its reach; -1: there is none.
        Of the same time it is the one that came last."""
        firsts, ends = self._bounds(mine, reach)
        found = ends - 1
        open = np.flatnonzero(found >= firsts)
        found[found < firsts] = NONE
        while len(open):  # once, but where different keys have the same hash
            same = same_keys(mine, open, self.rows, found[open])
            if same is None:
                break
            open = open[~same]
            found[open] -= 1
            over = found[open] < firsts[open]
            found[open[over]] = NONE
            open = open[~over]
        return found

    def _bounds(self, mine: KeyedRows, reach: Reach) -> tuple[Indices, Indices]:
        """For each row of the other side the first row here that it meets, and the one behind the
        last: those with its hash that are within its reach."""
        low, high = _runs(self.rows.hashes, mine.hashes)
        firsts = _first_not_below(self.rows.times, low, high, reach.first)
        return firsts, _first_not_below(self.rows.times, firsts, high, reach.last + 1)


def _in_time(rows: KeyedRows) -> Indices:
    return np.argsort(rows.times, kind="stable")


def in_order(rows: KeyedRows) -> KeyedRows:
    """Rows by the hash of their key and by time; of the same, those that came first."""
    order = np.argsort(rows.hashes, kind="stable")  # linear for two parts that are in order
    hashes, times = rows.hashes[order], rows.times[order]
    same = hashes[1:] == hashes[:-1]
    if (same & (times[1:] < times[:-1])).any():
        order = order[_by_time_within(same, times)]
    return rows.take(order)


def _by_time_within(same: Mask, times: Times) -> Indices:
    """The order by time within runs.

    Args:
        same: whether a row but the first is of the run of the one before it.
    """
    runs = np.concatenate([_BEGIN, np.cumsum(~same)])
    first = int(times.min())
    span = int(times.max()) - first + 1
    if (int(runs[-1]) + 1) * span >= 2**63:
        return np.lexsort((times, runs))
    # One number for both is sorted in a fraction of the time: it nearly is in order.
    return np.argsort(runs * span + (times - first), kind="stable")


def _runs(hashes: U64, wanted: U64) -> tuple[Indices, Indices]:
    """For each hash that is wanted where it begins and ends among others, which are in order."""
    changes = np.flatnonzero(wanted[1:] != wanted[:-1]) + 1
    begins = np.concatenate([_BEGIN, changes])
    once = wanted[begins]  # of neighbours that are equal one is looked for
    low = np.searchsorted(hashes, once)
    high = low.copy()
    found = np.flatnonzero(hashes[np.minimum(low, len(hashes) - 1)] == once)
    high[found] = np.searchsorted(hashes, once[found], side="right")
    many = np.diff(begins, append=len(wanted))
    return np.repeat(low, many), np.repeat(high, many)


def _first_not_below(times: Times, low: Indices, high: Indices, wanted: Times) -> Indices:
    """For each run of times, each in order, the first that is not below what is wanted of it: a
    binary search in all runs at once."""
    low, high = low.copy(), high.copy()
    open = np.flatnonzero(low < high)
    while len(open):
        middle = (low[open] + high[open]) >> 1
        below = times[middle] < wanted[open]
        low[open[below]] = middle[below] + 1
        high[open[~below]] = middle[~below]
        open = open[low[open] < high[open]]
    return low


def _cut(rows: Indices, counts: Indices) -> Iterator[Indices]:
    """Rows in runs that have about so many pairs, each at least one row."""
    ends = np.cumsum(counts)
    first = 0
    while first < len(rows):
        begun = ends[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(ends, begun + PAIRS_AT_ONCE, side="right")))
        yield rows[first:end]
        first = end
