"""Roots and ids: the two 64-bit columns that account for every segment.

A *root* names one attempt at one input segment: partition (16 bits), attempt (8), position (40).
All descendants carry it. Of the attempt the lower 7 bits count modulo 128: what could confuse two
of them would have to be late by 128 pending timeouts. The upper bit says that no flow condition may
ask for another one, so that whoever fails knows without asking how often it has been retried.

An *id* names one segment of a tree: an input segment by the name of its partition and its position;
an only child by the id of its parent, which it keeps (see `hop`); any other by a splitmix64 of its
parent's id, the edge and its index among the parent's children. It is never made of the attempt. So
the ids of a tree look random beside each other, as the XOR ledger needs, and are the same on every
replay, so that they also tell a repeat. Random ack vals, as in Storm and the original, would need a
second column for that. Names and not numbers, which a job has for itself, so that a job that goes
on where another one stopped knows what that one has applied.

Everything works on whole columns; nothing here loops over segments.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onyx.base.runs import Numbers, Run, array_of, taken
from onyx.ids import name_number

U64 = NDArray[np.uint64]
Indices = NDArray[np.intp]

PARTITIONS_MAX = 1 << 16
END_PARTITION = PARTITIONS_MAX - 1
"""Number that no source partition has: the tree that says that input has ended, without acks."""
POSITIONS_MAX = 1 << 40
RANGE_POSITIONS = 4096
"""Positions that one ledger array covers; `range_key` distinguishes them."""

PARTITION_SHIFT = 48
"""`root >> PARTITION_SHIFT` is the partition, as `range_key` is `root >> RANGE_SHIFT`."""
RANGE_SHIFT = 12
_PARTITION_SHIFT = np.uint64(PARTITION_SHIFT)
_ATTEMPT_SHIFT = np.uint64(40)
_RANGE_SHIFT = np.uint64(RANGE_SHIFT)
_POSITION_MASK = np.uint64(POSITIONS_MAX - 1)
_ATTEMPT_MASK = np.uint64(0xFF)
_ATTEMPT_BITS = np.uint64(0xFF << 40)
FINAL = 0x80
"""The number of an attempt: the last one that a flow condition may ask for."""
_COUNT_MASK = FINAL - 1

_EDGE_STEP = 0xD1342543DE82EF95
_CHILD_STEP = np.uint64(0xAF251AF3B0F025B5)
_WORD = (1 << 64) - 1
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_ONE = np.uint64(1)

assert 1 << RANGE_SHIFT == RANGE_POSITIONS


class RootColumns(NamedTuple):
    """What roots are made of, column by column."""

    partitions: U64
    attempts: U64
    positions: U64


def pack_roots(partition: int, attempt: int | U64, positions: U64) -> U64:
    """Roots of one partition.

    Args:
        partition: number of the partition within the job, below 2**16.
        attempt: 0 for the first reading, else of `next_attempt`; one for all or one a position.
        positions: below 2**40.
    """
    assert 0 <= partition < PARTITIONS_MAX
    tries = np.bitwise_and(np.asarray(attempt, dtype=np.uint64), _ATTEMPT_MASK)
    base = (np.uint64(partition) << _PARTITION_SHIFT) | (tries << _ATTEMPT_SHIFT)
    return positions | base


END_ROOT = END_PARTITION << PARTITION_SHIFT
"""The root of the tree that says that input has ended. Roots that inputs give are below it."""
END_ROOTS = np.array([END_ROOT], dtype=np.uint64)
"""The one root, as a column."""


def run_of_roots(partition: int, first: int, end: int) -> Run:
    """Roots of the positions `[first, end)` of a partition, first attempt."""
    return Run((partition << PARTITION_SHIFT) + first, end - first)


def unpack(roots: U64) -> RootColumns:
    """Partition, attempt and position of each root."""
    attempts = (roots >> _ATTEMPT_SHIFT) & _ATTEMPT_MASK
    return RootColumns(partitions_of(roots), attempts, positions_of(roots))


def partitions_of(roots: U64) -> U64:
    """Partition of each root."""
    return roots >> _PARTITION_SHIFT


def positions_of(roots: U64) -> U64:
    """Position of each root."""
    return roots & _POSITION_MASK


def attempt_bits(roots: U64) -> U64:
    """The bits of each root that hold its attempt; 0 for the first."""
    return roots & _ATTEMPT_BITS


def next_attempt(attempts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The attempts after these; what is final stays so."""
    return (attempts & np.uint8(FINAL)) | ((attempts + np.uint8(1)) & np.uint8(_COUNT_MASK))


def is_final(root: int) -> bool:
    """Whether nobody may have this root read again."""
    return bool(root >> 40 & FINAL)


def tries_of(root: int) -> int:
    """How often the segment of a root has been sent, this time included, modulo 128."""
    return ((root >> 40) & _COUNT_MASK) + 1


def any_retried(roots: Numbers) -> bool:
    """Whether one of them is not of the first attempt."""
    if isinstance(roots, Run):  # which are all of one partition and attempt
        return bool(roots.first & int(_ATTEMPT_BITS))
    return bool(np.bitwise_or.reduce(roots) & _ATTEMPT_BITS)


def first_attempts(roots: Numbers) -> Numbers:
    """The roots as if each were the first attempt: partition and position."""
    if isinstance(roots, Run):
        return Run(roots.first & ~int(_ATTEMPT_BITS), roots.count)
    return without_attempts(roots)


def without_attempts(roots: U64) -> U64:
    """`first_attempts` of an array."""
    return roots & ~_ATTEMPT_BITS


def range_key(roots: U64) -> U64:
    """The range of 4,096 positions (of one partition and attempt) that each root belongs to."""
    return roots >> _RANGE_SHIFT


def cut(roots: Numbers, shift: int) -> list[tuple[int, slice]]:
    """Increasing roots cut where `root >> shift` changes: each value with the slice that has it."""
    if not len(roots):
        return []
    if isinstance(roots, Run):
        return _cut_run(roots, shift)
    first, last = int(roots[0]) >> shift, int(roots[-1]) >> shift
    if first == last:
        return [(first, slice(0, len(roots)))]
    keys = roots >> np.uint64(shift)
    starts = [0, *((keys[1:] != keys[:-1]).nonzero()[0] + 1).tolist(), len(roots)]
    return [(int(keys[start]), slice(start, end)) for start, end in pairwise(starts)]


def _cut_run(roots: Run, shift: int) -> list[tuple[int, slice]]:
    first, count = roots.first, roots.count
    keys = range(first >> shift, ((roots.end - 1) >> shift) + 1)
    return [
        (key, slice(max(0, (key << shift) - first), min(count, ((key + 1) << shift) - first)))
        for key in keys
    ]


def mix(values: U64) -> U64:
    """The finalizer of splitmix64: a bijection whose results look random. Changes `values`."""
    scratch = values >> _S30
    values ^= scratch
    values *= _MIX_1
    np.right_shift(values, _S27, out=scratch)
    values ^= scratch
    values *= _MIX_2
    np.right_shift(values, _S31, out=scratch)
    values ^= scratch
    return values


def source_number(task: str, partition: str) -> int:
    """What a partition is called in the ids of its segments, in every job: of 63 bits."""
    return name_number(task, partition) >> 1


def root_ids(source: int, positions: U64) -> U64:
    """Ids of input segments: the same whichever attempt reads them, different for each position,
    never 0.

    Not mixed: the ids of one tree have to look random beside each other, and there is only one of
    these in each.

    Args:
        source: `source_number` of the partition.
        positions: below 2**40.
    """
    return positions + np.uint64(source + 1)


def ids_of(source: int, roots: Numbers) -> Numbers:
    """`root_ids` of roots of one partition."""
    if isinstance(roots, Run):
        first = roots.first & (POSITIONS_MAX - 1)
        return run_of_ids(source, first, first + roots.count)
    return root_ids(source, positions_of(roots))


def run_of_ids(source: int, first: int, end: int) -> Run:
    """`root_ids` of the positions `[first, end)`."""
    return Run(source + 1 + first, end - first)


def renumbered(roots: U64, ids: U64, numbers: Mapping[int, int]) -> tuple[U64, U64]:
    """Roots as they are in a job in which partitions have other numbers, with their ids; those of
    partitions that it does not have are left out."""
    table = np.full(PARTITIONS_MAX, -1, dtype=np.int64)
    table[list(numbers)] = list(numbers.values())
    found = table[partitions_of(roots).view(np.int64)]
    kept = found >= 0
    low = roots[kept] & np.uint64((1 << PARTITION_SHIFT) - 1)
    return (found[kept].astype(np.uint64) << _PARTITION_SHIFT) | low, ids[kept]


def child_ids(parent_ids: U64, edge: int, child_index: Indices | None = None) -> U64:
    """Ids of segments sent along one edge.

    Args:
        parent_ids: for each child, the id of the segment that it was made of.
        edge: number of the edge: a segment that goes to two tasks has two ids.
        child_index: index among the children of the same parent; None means 0 for all.

    Returns:
        One id a child, never 0 (XOR with 0 would not be noticed).
    """
    assert edge >= 0
    ids = parent_ids + np.uint64(((edge + 1) * _EDGE_STEP) & _WORD)
    if child_index is not None:
        ids += child_index.view(np.uint64) * _CHILD_STEP
    return np.maximum(mix(ids), _ONE)


def fold(roots: Numbers, values: Numbers) -> tuple[Numbers, Numbers]:
    """XOR of the values of equal roots: (roots, strictly increasing, and one value each).

    Columns that are in order already cost next to nothing, and that is how they mostly come.
    """
    if len(roots) < 2 or isinstance(roots, Run):
        return roots, values
    before, after = roots[:-1], roots[1:]
    if np.count_nonzero(after > before) == len(after):  # a third of the time that `all` takes
        return roots, values
    if (after < before).any():
        order = np.argsort(roots, kind="stable")
        roots, values = roots[order], taken(values, order)
    starts = np.flatnonzero(np.concatenate((_FIRST, roots[1:] != roots[:-1])))
    return roots[starts], np.bitwise_xor.reduceat(array_of(values), starts)


_FIRST = np.ones(1, dtype=np.bool_)
