"""Rows with what they are found by: the hash of their key, and their time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from onyx.flow.arrays import U64, Indices, Mask
from onyx.flow.groups.hashes import combined_hashes
from onyx.joins.streams.spans import Times


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of one side. None of the keys is null or has a part that is."""

    hashes: U64
    times: Times
    shards: Indices
    keys: tuple[pa.Array, ...]
    """A column for each part of the key, of ints or text (`joins.keys.plain`)."""
    rows: pa.RecordBatch
    """The segments, in the form in which they are stored."""

    @staticmethod
    def of(
        keys: Sequence[pa.Array], times: Times, shards: Indices, rows: pa.RecordBatch
    ) -> KeyedRows:
        """Rows with their hashes."""
        return KeyedRows(combined_hashes(keys), times, shards, tuple(keys), rows)

    def __len__(self) -> int:
        return len(self.times)

    def take(self, chosen: Indices) -> KeyedRows:
        """Some of them."""
        where = pa.array(chosen)
        return KeyedRows(
            self.hashes[chosen],
            self.times[chosen],
            self.shards[chosen],
            tuple(each.take(where) for each in self.keys),
            self.rows.take(where),
        )

    def like(self, other: KeyedRows) -> bool:
        """Whether both can be put together."""
        mine = [each.type for each in self.keys]
        same = mine == [each.type for each in other.keys]
        return same and bool(self.rows.schema.equals(other.rows.schema))


def together(first: KeyedRows, second: KeyedRows) -> KeyedRows:
    """The rows of two that are alike."""
    return KeyedRows(
        np.concatenate([first.hashes, second.hashes]),
        np.concatenate([first.times, second.times]),
        np.concatenate([first.shards, second.shards]),
        tuple(map(_joined, first.keys, second.keys)),
        pa.concat_batches([first.rows, second.rows]),
    )


def _joined(first: pa.Array, second: pa.Array) -> pa.Array:
    return pa.concat_arrays([first, second])


def same_keys(mine: KeyedRows, i: Indices, others: KeyedRows, j: Indices) -> Mask | None:
    """Which pairs of rows have the same key, of those that have the same hash; None: all."""
    pairs = list(zip(mine.keys, others.keys, strict=True))
    if len(pairs) == 1 and all(kinds.is_int64(each.type) for each in pairs[0]):
        return None  # no two ints have the same hash
    found = np.ones(len(i), np.bool_)
    for one, other in pairs:
        if kinds.is_int64(one.type) != kinds.is_int64(other.type):
            return np.zeros(len(i), np.bool_)
        equal = pc.equal(one.take(pa.array(i)), other.take(pa.array(j)))
        found &= equal.to_numpy(zero_copy_only=False)
    return found
