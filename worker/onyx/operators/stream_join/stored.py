"""What is stored of one side: parts, each twice as large as the next, merged as they grow.

A batch becomes a part of its own, and two parts become one when the older is not twice as large. So
a row is moved a few times, and there are a few parts to look into, whatever is stored. Rows that
nobody needs any more go when their part is merged, or when they are most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from onyx.flow.arrays import Mask
from onyx.operators.stream_join.keyed_rows import KeyedRows, together
from onyx.operators.stream_join.part import Keep, Part, in_order

GROWS = 2
Gone = Callable[[KeyedRows], Mask]
"""Which rows are of no use any more, of rows in order (`part.in_order`)."""
PART_BYTES_MAX = 1 << 30
"""Parts are not merged into a larger one: a column holds 2 GiB of text."""


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
        self._parts: list[Part] = []

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts, oldest first; none of them is ever changed."""
        return tuple(self._parts)

    def add(self, rows: KeyedRows) -> None:
        """More rows, in order (`part.in_order`)."""
        if not len(rows):
            return
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
        kept: list[Part | None] = []
        for part in self._parts:
            if part.is_before(time):
                continue
            kept.append(self._without_gone(part.rows) if part.is_half_before(time) else part)
        self._parts = [each for each in kept if each is not None]

    def forget(self, shard: int) -> None:
        """All rows of a shard go."""
        kept: list[Part] = []
        for part in self._parts:
            others = part.rows.shards != shard
            if others.all():
                kept.append(part)
            elif others.any():
                kept.append(self._part(part.rows.take(np.flatnonzero(others))))
        self._parts = kept

    def _without_gone(self, rows: KeyedRows) -> Part | None:
        gone = self._gone(rows)
        if gone.any():
            rows = rows.take(np.flatnonzero(~gone))
        return self._part(rows) if len(rows) else None

    def _part(self, rows: KeyedRows) -> Part:
        keep = self._keep if len(rows) >= self._large else None
        return Part(rows if keep is None and not rows.sparse else rows.packed(), keep)

    def between(self, first: int, end: int) -> Iterator[KeyedRows]:
        """Rows whose time is not below the first and below the end."""
        for part in self._parts:
            chosen = part.between(first, end)
            if len(chosen):
                yield part.rows.take(chosen)


def _too_large(one: Part, other: Part) -> bool:
    return sum(int(each.rows.segments.nbytes) for each in (one, other)) > PART_BYTES_MAX
