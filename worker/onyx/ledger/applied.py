"""Which segments have been applied to the state of a task: what exactly-once rests on.

The id of a segment is the same on every replay, so an id that is known is a repeat. Almost never is
one: within an allocation version a first attempt comes once, what an older version applied lies
below the highest position known when the new one began, and what a retry has brought that overtook
the first attempt lies below the highest retry. Only retries and what lies below these positions are
looked up; all else costs two columns that are kept. `forget` takes away what is below the frontier,
so memory is bounded by how far inputs are ahead of it.

What is looked up is looked up in sorted runs, each at least twice as long as the next, which are
made of the columns when the first look-up needs them. They are sorted by position, because repeats
come in that order and so find their neighbours in the cache; by id took three times as long. A set
of Python integers was rejected: 60 bytes and 100 ns an id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onyx.base.runs import Numbers, Run, array_of, follow, joined, taken
from onyx.ledger.lineage import (
    PARTITION_SHIFT,
    POSITIONS_MAX,
    U64,
    any_retried,
    attempt_bits,
    cut,
    first_attempts,
    partitions_of,
    positions_of,
    without_attempts,
)

Mask = NDArray[np.bool_]

BLOCK_IDS = 4_096
"""From this size on, what is kept is not joined with more before it is looked at."""
_ID_BITS = 8
"""The bits, as many as roots have for attempts, which do not count here."""
_ID_MASK = np.uint64((1 << _ID_BITS) - 1)
_POSITION_SHIFT = np.uint64(_ID_BITS)
_POSITION_MASK = np.uint64(POSITIONS_MAX - 1)
_PARTITION_SHIFT = np.uint64(PARTITION_SHIFT)


def above(frontiers: Mapping[int, int], roots: Numbers) -> Mask:
    """Which roots, of whichever attempts, are not below the frontier of their partition."""
    first = np.zeros(max(frontiers, default=0) + 2, dtype=np.uint64)
    for partition, position in frontiers.items():
        first[partition] = (partition << PARTITION_SHIFT) | position
    array = array_of(first_attempts(roots))
    found: Mask = array >= _of_partition(first, array)
    return found


class _AppliedBatch(NamedTuple):
    """Segments as they came, attempts included."""

    roots: Numbers
    ids: Numbers


class _Sorted(NamedTuple):
    """Segments sorted by key: partition, position, and the last bits of the id."""

    keys: U64
    ids: U64


class Applied:
    """Ids that have been applied, each with its root. Not thread-safe."""

    def __init__(self, roots: Numbers | None = None, ids: Numbers | None = None) -> None:
        """With what was recovered, which first attempts may repeat; its attempts do not count."""
        self._runs: list[_Sorted] = []
        self._recent: list[_AppliedBatch] = []
        self._limits: U64 | None = None
        """By partition, the first root from which on no first attempt has been applied before;
        None: all of them."""
        if roots is not None and ids is not None:
            self.add(roots, ids)
            self.rewired()

    def known(self, roots: Numbers, ids: Numbers) -> Mask | None:
        """For each segment of a batch whether it has been applied before, or is in the batch twice
        and this is not the first of them; None: none is."""
        where, retried = self._suspects(roots), any_retried(roots)
        if not retried and (where is None or not len(where)):
            return None
        found: Mask = np.zeros(len(roots), dtype=np.bool_)
        if where is not None and len(where):
            self._sort()
            wanted = taken(ids, where)
            keys = _keys(taken(roots, where), wanted)
            for run in self._runs:
                found[where] |= _is_in(run, keys, wanted)
        if retried:
            found |= _repeated(without_attempts(array_of(roots)), array_of(ids))
        return found if found.any() else None

    def add(self, roots: Numbers, ids: Numbers) -> None:
        """Segments that are applied now. The columns are kept and must not change afterwards."""
        assert len(roots) == len(ids), "each id has its root"
        last = self._recent[-1] if self._recent else None
        if last is not None and follow((last.roots, roots)) and follow((last.ids, ids)):
            self._recent[-1] = _AppliedBatch(joined((last.roots, roots)), joined((last.ids, ids)))
        else:
            self._recent.append(_AppliedBatch(roots, ids))
        if any_retried(roots):
            # Another way through the job may be shorter: the first attempt is still to come.
            array = array_of(roots)
            self._suspect(without_attempts(array[attempt_bits(array) != 0]))

    def forget(self, frontiers: Mapping[int, int]) -> None:
        """Drop what lies below the frontier (a position) of its partition: it never comes again."""
        first_roots = np.zeros(max(frontiers, default=0) + 2, dtype=np.uint64)
        for partition, position in frontiers.items():
            first_roots[partition] = (partition << PARTITION_SHIFT) | position
        kept = (_from(first_roots, block) for block in _blocks(self._recent))
        self._recent = [rest for rest in kept if len(rest.ids)]
        self._runs = [rest for run in self._runs if len((rest := _above(frontiers, run)).keys)]
        if self._limits is not None:
            shared = min(len(first_roots), len(self._limits))
            self._limits[:shared][self._limits[:shared] <= first_roots[:shared]] = 0
            self._limits = self._limits if self._limits.any() else None

    def rewired(self) -> None:
        """The job has a new allocation version, so first attempts may come a second time."""
        self._limits = None
        self._suspect(self.columns()[0])

    def columns(self) -> tuple[U64, U64]:
        """Roots (attempt bits cleared) and ids of all that is known, for a snapshot."""
        found = _joined([*map(_batch_of, self._runs), *self._recent])
        roots = array_of(found.roots)
        return without_attempts(roots) if any_retried(roots) else roots, array_of(found.ids)

    def _suspect(self, roots: U64) -> None:
        """First attempts up to the last of these positions of each partition may be repeats."""
        roots = np.sort(roots)
        lasts = {key: int(roots[part.stop - 1]) for key, part in cut(roots, PARTITION_SHIFT)}
        if not lasts:
            return
        before = self._limits if self._limits is not None else np.empty(0, dtype=np.uint64)
        limits = np.zeros(max(max(lasts) + 2, len(before)), dtype=np.uint64)
        limits[: len(before)] = before
        for partition, last in lasts.items():
            limits[partition] = max(last + 1, int(limits[partition]))
        self._limits = limits

    def _suspects(self, roots: Numbers) -> NDArray[np.intp] | None:
        """Which of them may have been applied before; None: none of them."""
        if isinstance(roots, Run):
            return self._suspects_of_run(roots)
        retried = any_retried(roots)
        if self._limits is None:
            return np.flatnonzero(attempt_bits(roots)) if retried else None
        suspect = roots < _of_partition(self._limits, roots)
        if retried:
            suspect |= attempt_bits(roots) != 0
        return np.flatnonzero(suspect)

    def _suspects_of_run(self, roots: Run) -> NDArray[np.intp] | None:
        if any_retried(roots):
            return np.arange(len(roots))
        if self._limits is None:
            return None
        partition = roots.first >> PARTITION_SHIFT
        below = int(self._limits[min(partition, len(self._limits) - 1)]) - roots.first
        return np.arange(min(below, len(roots))) if below > 0 else None

    def _sort(self) -> None:
        """Make a run of what is recent, and one of it and the runs that are not twice as long."""
        recent = _joined(self._recent)
        self._recent = []
        if not len(recent.ids):
            return
        ids = array_of(recent.ids)
        run = _sorted(_keys(array_of(recent.roots), ids), ids)
        while self._runs and len(self._runs[-1].ids) < 2 * len(run.ids):
            both = zip(self._runs.pop(), run, strict=True)
            run = _sorted(*map(np.concatenate, both))
        self._runs.append(run)


def _is_in(run: _Sorted, keys: U64, ids: U64) -> Mask:
    """Whether each segment is in a run."""
    found: Mask = np.zeros(len(keys), dtype=np.bool_)
    at = np.searchsorted(run.keys, keys)
    left = np.flatnonzero(at < len(run.keys))
    while len(left):  # again only for trees with several ids that end alike
        left = left[run.keys[at[left]] == keys[left]]
        found[left] = run.ids[at[left]] == ids[left]
        at[left] += 1
        left = left[~found[left] & (at[left] < len(run.keys))]
    return found


def without(count: int, withdrawn: Sequence[int]) -> Mask | None:
    """Which of so many segments of a batch are not withdrawn; None: all of them."""
    if not len(withdrawn):
        return None
    found = np.ones(count, dtype=np.bool_)
    found[list(withdrawn)] = False
    return found


def repeats_of(
    roots: Numbers | None, ids: Numbers | None, chosen: NDArray[np.intp]
) -> dict[int, int]:
    """The segments of a batch that are the same as some of it, because another attempt has brought
    them: by the index of each the index of that one. Whatever keeps some from being applied keeps
    these from it too."""
    if roots is None or ids is None or not len(chosen) or not any_retried(roots):
        return {}
    firsts, named = without_attempts(array_of(roots)), array_of(ids)
    wanted = {(firsts[index], named[index]): index for index in map(int, chosen)}
    alike = np.flatnonzero(np.isin(named, named[chosen]))
    others = np.setdiff1d(alike, chosen).tolist()
    found = ((index, wanted.get((firsts[index], named[index]))) for index in others)
    return {index: first for index, first in found if first is not None}


def _repeated(roots: U64, ids: U64) -> Mask:
    """Segments that are the same as an earlier one."""
    order = np.lexsort((ids, roots))
    first, then = order[:-1], order[1:]
    found: Mask = np.zeros(len(roots), dtype=np.bool_)
    found[then] = (roots[then] == roots[first]) & (ids[then] == ids[first])
    return found


def _keys(roots: U64, ids: U64) -> U64:
    keys: U64 = partitions_of(roots) << _PARTITION_SHIFT
    keys |= positions_of(roots) << _POSITION_SHIFT
    keys |= ids & _ID_MASK
    return keys


def _batch_of(run: _Sorted) -> _AppliedBatch:
    positions = (run.keys >> _POSITION_SHIFT) & _POSITION_MASK
    return _AppliedBatch((partitions_of(run.keys) << _PARTITION_SHIFT) | positions, run.ids)


def _sorted(keys: U64, ids: U64) -> _Sorted:
    # Stable, because that is fast on what is nearly in order.
    order = np.argsort(keys, kind="stable")
    return _Sorted(keys[order], ids[order])


def _joined(batches: list[_AppliedBatch]) -> _AppliedBatch:
    if len(batches) == 1:
        return batches[0]
    return _AppliedBatch(
        joined([each.roots for each in batches]), joined([each.ids for each in batches])
    )


def _blocks(batches: list[_AppliedBatch]) -> Iterator[_AppliedBatch]:
    """The batches in larger parts, if they are small: one of all would not fit the cache. A run is
    a part by itself."""
    waiting: list[_AppliedBatch] = []
    size = 0
    for each in batches:
        if isinstance(each.roots, Run):
            yield each
            continue
        waiting.append(each)
        size += len(each.ids)
        if size >= BLOCK_IDS:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _from(first_roots: U64, batch: _AppliedBatch) -> _AppliedBatch:
    """What does not lie below the frontier of its partition."""
    roots = first_attempts(batch.roots)
    if isinstance(roots, Run):
        first = int(first_roots[min(roots.first >> PARTITION_SHIFT, len(first_roots) - 1)])
        below = min(max(0, first - roots.first), len(roots))
        return _AppliedBatch(batch.roots[below:], batch.ids[below:]) if below else batch
    keep = roots >= _of_partition(first_roots, roots)
    return batch if keep.all() else _AppliedBatch(taken(batch.roots, keep), taken(batch.ids, keep))


def _above(frontiers: Mapping[int, int], run: _Sorted) -> _Sorted:
    """The ids above the frontiers, found, by the order of a run."""
    keep = np.ones(len(run.keys), dtype=np.bool_)
    for partition, position in frontiers.items():
        first = partition << PARTITION_SHIFT
        between = np.array([first, first | (position << _ID_BITS)], dtype=np.uint64)
        keep[slice(*np.searchsorted(run.keys, between))] = False
    return run if keep.all() else _Sorted(run.keys[keep], run.ids[keep])


def _of_partition(table: U64, roots: U64) -> U64:
    """For each root the entry of its partition; the last one for partitions beyond the table."""
    found: U64 = table.take(partitions_of(roots).view(np.int64), mode="clip")
    return found
