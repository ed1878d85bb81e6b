"""The XOR ledger: which trees of segments are complete.

Every id enters the ledger of its root twice, once from the peer that made the segment and once from
the peer that was done with it, in any order; the tree is complete when the XOR is zero. One ledger
covers a range of 4,096 positions (`RangeLedger`), as runs or as an array. Zero stands for
"nothing is open" whether the root is unknown, complete or was forgotten, which is what makes
forgetting a range safe: a ledger of zeros says no more than no ledger.

A dict of root to value was rejected: 114 ns a segment against 4.

Not thread-safe. One `Acker` serves one job in one allocation version; a new version starts a new
one, because frames of the old version are dropped and inputs replay.

A range is of runs as long as whole runs come, else of an array. Of a run of roots that is acked
with the run of its ids only the two ends are kept. Every root of one partition has the same
distance to its id, so one distance is kept for all. The ends are a set, and so XOR is the symmetric
difference of two sets: a run that comes the second time takes its ends out, half of one leaves the
other half, and two that meet become one. The first thing that is no such run turns the range into
an array, until nothing of it is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from onyx.base.runs import Numbers, Run, array_of, gathered, joined, taken
from onyx.ledger.lineage import (
    RANGE_POSITIONS,
    RANGE_SHIFT,
    U64,
    Indices,
    cut,
    fold,
    mix,
    range_key,
)

_SPARES_MAX = 16

OFFSET_MASK = RANGE_POSITIONS - 1

ENDS_MAX = 16
"""The ends of the runs of a range; with more it becomes an array."""

_WORD = (1 << 64) - 1


class _Packed(NamedTuple):
    """A range of which little is open."""

    offsets: npt.NDArray[np.uint16]
    values: U64
    touched_s: float


class Acker:
    """Ledger of the trees that one peer answers for.

    Memory is bounded whatever the inputs do: by `ranges_max` ranges of 36 KiB, and beyond those by
    10 bytes for each open tree, at most `trees_max`, and some 300 for each range of theirs. A tree
    for which there is no room is forgotten, and said to be (`forgotten`), so that it is replayed at
    once instead of after its timeout, which may be a day.
    """

    def __init__(self, ranges_max: int = 2_048, trees_max: int = 1_000_000) -> None:
        """
        Args:
            ranges_max: most ranges kept as arrays; beyond it the one idle longest is packed.
            trees_max: most open trees in packed ranges, and most packed ranges; beyond it the range
                idle longest is forgotten.
        """
        assert ranges_max > 0
        self._ranges_max = ranges_max
        self._trees_max = trees_max
        self._ranges: dict[int, RangeLedger] = {}
        self._packed: dict[int, _Packed] = {}
        self._packed_trees = 0
        self._forgotten: list[U64] = []
        self._spares: list[RangeLedger] = []
        self._now_s = 0.0

    def absorb(self, parcels: Iterable[tuple[Numbers, Numbers]]) -> list[Numbers]:
        """Take what peers report, parcels of (roots, values); equal roots may repeat and come in
        any order. All that waits is best taken at once: who asks in between pays for the answer.

        Returns:
            The roots of which something came and whose XOR is zero now, in increasing order over
            all columns, each once: their trees are complete. A root that was unknown and comes
            with 0 is complete at once (an input segment that nobody wanted); one that is open and
            comes with 0 stays open.
        """
        touched: dict[int, RangeLedger] = {}
        for roots, values in parcels:
            assert len(roots) == len(values)
            roots, values = fold(roots, values)
            for key, part in cut(roots, RANGE_SHIFT):
                if key not in touched:
                    touched[key] = self._take(key)
                touched[key].add(roots[part], values[part])
        done = [self._settle(key, touched[key]) for key in sorted(touched)]
        return gathered(chain.from_iterable(done))

    def forgotten(self) -> U64:
        """Roots of open trees that were forgotten for want of memory since the last call."""
        found, self._forgotten = self._forgotten, []
        return np.concatenate(found) if found else np.empty(0, dtype=np.uint64)

    def held(self, roots: Numbers) -> None:
        """Somebody works on these trees (increasing roots): their ranges are not idle."""
        for key, _ in cut(roots, RANGE_SHIFT):
            if key in self._ranges:
                ledger = self._ranges[key] = self._ranges.pop(key)
                ledger.touched_s = self._now_s
            elif key in self._packed:
                self._packed[key] = self._packed.pop(key)._replace(touched_s=self._now_s)

    def expire(self, now_s: float, idle_timeout_s: float) -> int:
        """Drop ranges that nothing has touched for a time, and tell how many.

        Called every few seconds; touches count as of the last call.

        Args:
            now_s: monotonic time.
            idle_timeout_s: at least the pending timeout of the job's inputs: what is dropped has
                been replayed then, under other roots.
        """
        assert now_s >= self._now_s
        self._now_s = now_s
        oldest = now_s - idle_timeout_s
        old = [key for key, ledger in self._ranges.items() if ledger.touched_s < oldest]
        for key in old:
            del self._ranges[key]
        packed = [key for key, ledger in self._packed.items() if ledger.touched_s < oldest]
        for key in packed:
            self._unpacked(key)
        return len(old) + len(packed)

    def pending_count(self) -> int:
        """Trees that are open: something of them was reported, and it is not complete."""
        return sum(ledger.open for ledger in self._ranges.values()) + self._packed_trees

    def range_count(self) -> int:
        """Ranges held in memory."""
        return len(self._ranges) + len(self._packed)

    def _settle(self, key: int, ledger: RangeLedger) -> list[Numbers]:
        assert key not in self._ranges, "taken out before, so that nobody packs it meanwhile"
        assert key not in self._packed, "a range is in one place"
        done = ledger.settle(key)
        if ledger.open:
            if len(self._ranges) >= self._ranges_max:
                self._pack(next(iter(self._ranges)))
            ledger.touched_s = self._now_s
            self._ranges[key] = ledger
        # With nothing open all its values are zero, as those of a new one.
        elif ledger.has_array and len(self._spares) < _SPARES_MAX:
            self._spares.append(ledger)
        return done

    def _take(self, key: int) -> RangeLedger:
        # Out of the dict until it is settled: so `_settle` packs none that is in use, and what it
        # puts back comes last. The dict is in the order of use, and its first range idle longest.
        if key in self._ranges:
            return self._ranges.pop(key)
        ledger = self._spares.pop() if self._spares else RangeLedger()
        if key in self._packed:
            found = self._unpacked(key)
            ledger.put(found.offsets.astype(np.intp), found.values)
        return ledger

    def _pack(self, key: int) -> None:
        ledger = self._ranges.pop(key)
        offsets, values = ledger.values(key)
        assert len(offsets) == ledger.open, "what is open is packed, and nothing else"
        self._packed[key] = _Packed(offsets.astype(np.uint16), values, ledger.touched_s)
        self._packed_trees += len(offsets)
        while max(self._packed_trees, len(self._packed)) > self._trees_max:
            oldest = next(iter(self._packed))
            offsets = self._unpacked(oldest).offsets.astype(np.intp)
            self._forgotten.append(_roots(oldest, offsets))

    def _unpacked(self, key: int) -> _Packed:
        found = self._packed.pop(key)
        self._packed_trees -= len(found.offsets)
        assert self._packed_trees >= 0, "no range is taken out twice"
        return found


def _roots(key: int, offsets: Indices) -> U64:
    """The roots of the positions with these offsets in a range, in order."""
    return offsets.view(np.uint64) + np.uint64(key << RANGE_SHIFT)


def acker_of(ranges: U64, n_ackers: int) -> Indices:
    """Which acker answers for each range (`range_key` of a root), from 0: by hash, so that ranges
    spread evenly and every peer comes to the same answer."""
    assert n_ackers > 0
    if n_ackers == 1:
        return np.zeros(len(ranges), dtype=np.intp)
    return (mix(ranges + np.uint64(1)) % np.uint64(n_ackers)).astype(np.intp)


def acker_of_root(root: int, n_ackers: int) -> int:
    """Which acker answers for a root."""
    return int(acker_of(range_key(np.array([root], dtype=np.uint64)), n_ackers)[0])


def split_by_acker(
    roots: Numbers, values: Numbers, n_ackers: int
) -> list[tuple[int, Numbers, Numbers]]:
    """Folded columns (`fold`) cut into (acker, roots, values), each part in increasing order."""
    if len(roots) == 0:
        return []
    if n_ackers == 1:
        return [(0, roots, values)]
    if isinstance(roots, Run):
        return _split_run(roots, values, n_ackers)
    first = range_key(roots[:1])
    if int(roots[-1]) >> RANGE_SHIFT == int(first[0]):
        return [(int(acker_of(first, n_ackers)[0]), roots, values)]
    chosen = acker_of(range_key(roots), n_ackers)
    parts = ((acker, chosen == acker) for acker in np.unique(chosen).tolist())
    return [(acker, roots[mask], taken(values, mask)) for acker, mask in parts]


def _split_run(roots: Run, values: Numbers, n_ackers: int) -> list[tuple[int, Numbers, Numbers]]:
    parts = cut(roots, RANGE_SHIFT)
    ackers = acker_of(np.array([key for key, _ in parts], dtype=np.uint64), n_ackers).tolist()
    found: dict[int, list[slice]] = {}
    for acker, (_, part) in zip(ackers, parts, strict=True):
        found.setdefault(acker, []).append(part)
    return [
        (acker, joined([roots[each] for each in its]), joined([values[each] for each in its]))
        for acker, its in sorted(found.items())
    ]


# --- the ledger of one range --------------------------------------------------------------------

EndSpan = tuple[int, int]
"""Offsets of a range, from the first to before the second."""


class RangeLedger:
    """The ledger of one range; offset `i` belongs to its i-th position."""

    __slots__ = ("_acked", "_dense", "_distance", "_ends", "_spans", "_values", "open", "touched_s")

    def __init__(self) -> None:
        self._ends: set[int] = set()
        """The offsets at which runs that are open begin or end."""
        self._distance = 0
        """From a root to its id, in these runs."""
        self._spans: list[EndSpan] = []
        """What runs have come over since the last `settle`."""
        self._dense = False
        """Whether the array counts; until then it is all zeros."""
        self._values: U64 | None = None
        self._acked = np.zeros(0, dtype=np.bool_)
        """Positions of which something has come since the last `settle`."""
        self.open = 0
        """How many values are not zero, as of the last `settle`."""
        self.touched_s = 0.0

    def add(self, roots: Numbers, values: Numbers) -> None:
        """XOR values in; `roots` are strictly increasing and all of this range."""
        first, last = int(roots[0]) & OFFSET_MASK, int(roots[-1]) & OFFSET_MASK
        assert len(roots) == len(values) <= last - first + 1, "each root once, and in order"
        if isinstance(roots, Run) and isinstance(values, Run) and not self._dense:
            distance = (values.first - roots.first) & _WORD
            if self._toggle(first, last + 1, distance):
                return
        array = self._array(int(roots[0]) & ~OFFSET_MASK)
        where: slice | Indices
        if isinstance(roots, Run) or last - first + 1 == len(roots):
            where = slice(first, last + 1)
        else:
            where = (roots & np.uint64(OFFSET_MASK)).view(np.int64)
        array[where] ^= array_of(values)
        self._acked[where] = True

    def settle(self, key: int) -> list[Numbers]:
        """The roots of which something has come since the last call and that are at zero now, in
        order, by the key of the range."""
        base = key << RANGE_SHIFT
        if not self._dense:
            runs = list(self._runs())
            self.open = sum([end - first for first, end in runs])
            spans, self._spans = self._spans, []
            return [Run(base + first, end - first) for first, end in _without(spans, runs)]
        zero = self._array(base) == 0
        self.open = RANGE_POSITIONS - int(np.count_nonzero(zero))
        done: Indices = np.logical_and(zero, self._acked, out=zero).nonzero()[0]
        self._acked.fill(False)
        self._dense = self.open > 0
        if not len(done):
            return []
        first, count = int(done[0]), len(done)
        if int(done[-1]) - first + 1 == count:
            return [Run(base + first, count)]
        return [done.view(np.uint64) + np.uint64(base)]

    def values(self, key: int) -> tuple[Indices, U64]:
        """The offsets of what is open, in order, and the values there."""
        values = self._array(key << RANGE_SHIFT)
        offsets = np.flatnonzero(values)
        return offsets, values[offsets]

    def put(self, offsets: Indices, values: U64) -> None:
        """Let these be open, in a range in which nothing is."""
        assert not self._ends, "a new range, or one that was used up"
        assert not self.open, "likewise"
        self._array(0)[offsets] = values

    @property
    def has_array(self) -> bool:
        """Whether it has an array, to be used again."""
        return self._values is not None

    def _toggle(self, first: int, end: int, distance: int) -> bool:
        """XOR a run in; False if it does not go with those that are here."""
        if self._ends and distance != self._distance:
            return False
        ends = self._ends ^ {first, end}
        if len(ends) > ENDS_MAX or len(self._spans) >= ENDS_MAX:
            return False
        self._ends, self._distance = ends, distance
        self._spans.append((first, end))
        return True

    def _runs(self) -> Iterator[EndSpan]:
        ends = iter(sorted(self._ends))
        return zip(ends, ends, strict=True)

    def _array(self, base: int) -> U64:
        """The values as an array from now on.

        Args:
            base: the root at offset 0.
        """
        if self._values is None:
            self._values = np.zeros(RANGE_POSITIONS, dtype=np.uint64)
            self._acked = np.zeros(RANGE_POSITIONS, dtype=np.bool_)
        if not self._dense:
            self._dense = True
            for first, end in self._runs():
                id = (base + first + self._distance) & _WORD
                self._values[first:end] = Run(id, end - first).array()
            for first, end in self._spans:
                self._acked[first:end] = True
            self._ends, self._spans = set(), []
        return self._values


def _without(spans: list[EndSpan], runs: list[EndSpan]) -> list[EndSpan]:
    """What is in one of the spans and in none of the runs, which are increasing, in order."""
    if len(spans) == 1 and not runs:
        return spans
    found: list[EndSpan] = []
    at = 0
    for first, end in sorted(spans):
        first = max(first, at)
        for open_first, open_end in runs:
            if first < open_first < end:
                found.append((first, open_first))
            if open_first < end and open_end > first:
                first = open_end
        if first < end:
            found.append((first, end))
        at = max(at, first, end)
    return found
