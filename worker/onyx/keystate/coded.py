"""What windows take of a batch: of dicts a list with one item a segment, of columns arrays.

The group of a row of columns is a code into the groups of the batch, so that a window takes a step
for each group of a batch and none for each row. Both forms are asked by the functions here; whoever
has to look at single segments makes lists of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from onyx.flow.batch import Indices, Segment, Segments, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.columns.values import python_values
from onyx.flow.groups.codes import KeyCodes, KeyList, Remembered, compact
from onyx.keystate.groups import Keys, Shards, hashable_key, hashable_keys, is_plain

Array = NDArray[np.int64] | NDArray[np.float64]
Values = Sequence[Any] | NDArray[Any]
"""One item a segment."""
_INT64_MAX = 2**63 - 1


class Groups(msgspec.Struct):
    """The groups of rows of columns."""

    codes: Indices
    """For each row the index of its group in `keys`."""
    _keys: list[Any] | None
    column: pa.Array | None = None
    """The values as `keys`, of ints or text: who needs no more makes no Python values."""

    @property
    def keys(self) -> list[Any]:
        """Each group of the batch once (`groups.hashable_key`), in order of its first row."""
        if self._keys is None:
            assert self.column is not None, "one of the two"
            self._keys = python_values(self.column)
        return self._keys

    @staticmethod
    def one(many: int) -> Groups:
        """So many rows of a task that is not grouped."""
        return Groups(np.zeros(many, np.intp), [None] if many else [])

    @staticmethod
    def of_rows(keys: Sequence[Any]) -> Groups:
        """Groups of which each row has its own."""
        found: dict[Any, int] = {}
        codes = [found.setdefault(key, len(found)) for key in keys]
        return Groups(np.array(codes, np.intp), list(found))

    @staticmethod
    def each(keys: list[Any]) -> Groups:
        """Different groups, with a row each."""
        return Groups(np.arange(len(keys)), keys)

    @property
    def many(self) -> int:
        """How many different groups there are."""
        return len(self.keys) if self.column is None else len(self.column)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> Any:
        return self.keys[self.codes[row]]

    def take(self, chosen: Indices) -> Groups:
        """The groups of some rows."""
        if self.column is not None:
            codes, olds, _ = compact(self.codes[chosen], len(self.column))
            return Groups(codes, None, self.column.take(pa.array(olds)))
        codes, olds, _ = compact(self.codes[chosen], len(self.keys))
        return Groups(codes, [self.keys[old] for old in olds.tolist()])

    def rows(self) -> list[Any]:
        """The group of each row."""
        keys = self.keys
        return [keys[code] for code in self.codes.tolist()]

    def counts(self) -> list[int]:
        """For each group how many rows it has."""
        found: list[int] = np.bincount(self.codes, minlength=self.many).tolist()
        return found


Keyed = Sequence[Any] | Groups
"""The group of each segment of a batch."""


def keyed(segments: Segments, groups: Keyed | None) -> Keyed:
    """The groups of segments in the form that goes with them: before a function of a task they may
    have been columns, and dicts behind it.

    Args:
        groups: None where the task is not grouped.
    """
    return format_of(segments).choose(_keyed_dicts, _keyed_rows)(segments, groups)


def _keyed_dicts(segments: list[Segment], groups: Keyed | None) -> Keyed:
    found: Keyed = [None] * len(segments) if groups is None else rows(groups)
    return found


def _keyed_rows(columns: Columns, groups: Keyed | None) -> Keyed:
    if groups is None:
        return Groups.one(len(columns))
    return groups if isinstance(groups, Groups) else Groups.of_rows(groups)


class GroupKeys:
    """The groups of segments, remembered for those that come again."""

    def __init__(self) -> None:
        self._remembered = Remembered(hashable_key)

    def of_list(self, keys: KeyList) -> list[Any]:
        """The group of each dict. Raises as `of`."""
        return hashable_keys(keys.raws) if keys.names is None else self._remembered.of(keys)

    def of(self, keys: KeyCodes) -> Groups:
        """The group that each row is in.

        Raises:
            UserError: a key is or holds NaN, or something that has no canonical form.
        """
        if keys.column is not None:
            return Groups(keys.codes, None, keys.column)
        found = keys.raws
        if keys.names is not None or not is_plain(found):
            found = self._remembered.of(keys)
            merged: dict[Any, int] = {}
            news = [merged.setdefault(key, len(merged)) for key in found]
            if len(merged) < len(found):
                return Groups(np.array(news, np.intp)[keys.codes], list(merged))
        return Groups(keys.codes, found)


def chosen(values: Any, indices: Indices | None) -> Any:
    """The items, groups or segments at some indices; None: all."""
    if indices is None or values is None:
        return values
    if isinstance(values, Groups | Columns):
        return values.take(indices)
    if isinstance(values, np.ndarray):
        return values[indices]
    return [values[index] for index in indices.tolist()]


def without(groups: Keyed, left_out: Sequence[int]) -> Keyed:
    """The groups of a batch but those of some rows."""
    if not left_out:
        return groups
    kept: Keyed = chosen(groups, np.delete(np.arange(len(groups)), left_out))
    return kept


def rows(values: Any) -> Any:
    """Items or groups of a batch as Python has them, one a segment; of columns parts of one row."""
    if isinstance(values, Groups):
        return values.rows()
    if isinstance(values, Columns):
        return [values.slice(row, row + 1) for row in range(len(values))]
    return values.tolist() if isinstance(values, np.ndarray) else values


def different(groups: Keyed) -> Keys:
    """Each group of a batch once, in order of its first segment."""
    return dict.fromkeys(groups.keys if isinstance(groups, Groups) else groups)


def shards_of(groups: Keyed, shards: Shards) -> dict[int, None]:
    """The shards that the groups of a batch are in, each once."""
    if isinstance(groups, Groups) and groups.column is not None:
        return dict.fromkeys(np.unique(shards.of_column(groups.column)).tolist())
    return dict.fromkeys(map(shards.__getitem__, different(groups)))


def shards_in(shard_of: Mapping[Any, int], groups: Keyed) -> Indices:
    """The shard of each segment."""
    if not isinstance(groups, Groups):
        return np.fromiter(map(shard_of.__getitem__, groups), np.intp, len(groups))
    found: Indices = _shards_of_groups(shard_of, groups)[groups.codes].astype(np.intp, copy=False)
    return found


def _shards_of_groups(shard_of: Mapping[Any, int], groups: Groups) -> NDArray[Any]:
    if groups.column is not None and isinstance(shard_of, Shards):
        return shard_of.of_column(groups.column)
    return np.fromiter((shard_of[key] for key in groups.keys), np.intp, len(groups.keys))


def numbers_of(column: pa.Array) -> Array | None:
    """A column as an array of what Python's int or float holds; None if it holds anything else, or
    an int beyond 64 bits."""
    kind = column.type
    if column.null_count:
        return None
    if kinds.is_floating(kind):
        floats: Array = column.to_numpy().astype(np.float64, copy=False)
        return floats
    if not kinds.is_integer(kind):
        return None
    ints = column.to_numpy()
    if kinds.is_uint64(kind) and len(ints) and int(ints.max()) > _INT64_MAX:
        return None
    found: Array = ints.astype(np.int64, copy=False)
    return found
