"""What another task keeps by key, as rows that segments get: a row for each group that was asked
for, with one column.

Groups are equal here as they are in the task that keeps them (`windows.groups`): the row of a
segment is found by its group, and not by the type that its key has in a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.arrays import Indices
from onyx.flow.columns.record_batch import from_dicts
from onyx.flow.columns.values import MISMATCH, python_values, to_array
from onyx.flow.formats import Segments, format_of
from onyx.flow.segment import Segment
from onyx.joins.attaching import values_of
from onyx.joins.keys import NONE
from onyx.windows.groups import group_value, hashable_key

Parts = tuple[Any, ...]
"""The values of the parts of a key."""


class Kept:
    """The states of the groups of one batch. Not thread-safe."""

    def __init__(
        self, state: str, key: Sequence[str], column: str, names: Sequence[str] | None = None
    ) -> None:
        """
        Args:
            state: its name, for people.
            key: keys of a segment, whose values say which group is wanted.
            column: what the column with the states is called.
            names: what the parts of a group are called; None: a group is the value of one key.
        """
        self.title = f"state {state}"
        self.key = tuple(key)
        self.columns: pa.RecordBatch = pa.record_batch({column: pa.nulls(0)})
        self._column = column
        self._names = names
        self._rows: dict[Any, int] = {}
        self._misfits: dict[Any, Exception] = {}
        """Groups whose state is of another type than those of the others."""

    def keys_of(self, segments: Segments) -> list[Any]:
        """The groups of some segments (`hashable_key`), each once. What is no group of any task is
        left out."""
        parts = format_of(segments).choose(self._of_dicts, self._of_columns)(segments)
        return list({key: None for each in parts if (key := self._group(each)) is not None})

    def take(self, keys: Sequence[Any], states: Sequence[Any]) -> None:
        """Have the states of these groups, and no others."""
        rows, kept, failures = self._rows_of(states)
        self._misfits = {keys[index]: error for index, error in failures}
        there = keys if kept is None else [keys[index] for index in kept]
        self._rows = {key: row for row, key in enumerate(there)}
        self.columns = rows if there else self.columns.slice(0, 0)

    def _rows_of(
        self, states: Sequence[Any]
    ) -> tuple[pa.RecordBatch, Indices | None, list[tuple[int, Exception]]]:
        """A row for each state, as `from_dicts` gives them."""
        column = self._column
        try:
            return pa.record_batch({column: to_array(states)}), None, []
        except MISMATCH:
            rows, kept, failures = from_dicts([{column: state} for state in states])
            return rows.record_batch, kept, failures

    def find(self, keys: Sequence[pa.Array], at: pa.Array | None = None) -> Indices:
        """For each key the index of its row; -1: it has none.

        Raises:
            UserError: a state that is found is of another type than others.
        """
        assert at is None, "validated: states have no versions"
        different, codes = _different(keys)
        found = np.fromiter(map(self._find, different), np.intp, len(different))
        return found[codes]

    def _find(self, parts: Parts) -> int:
        key = self._group(parts)
        if key in self._misfits:
            raise UserError(f"the state of group {group_value(key)!r}: {self._misfits[key]}")
        return NONE if key is None else self._rows.get(key, NONE)

    def _group(self, parts: Parts) -> Any:
        """The key of the group, to be looked up; None: it is none."""
        if None in parts:
            return None
        names = self._names
        try:
            return hashable_key(parts[0] if names is None else _named(names, parts))
        except UserError:
            return None

    def _of_dicts(self, segments: list[Segment]) -> Iterable[Parts]:
        if len(self.key) == 1:
            (key,) = self.key
            return [(each.get(key),) for each in segments]
        return [tuple(each.get(key) for key in self.key) for each in segments]

    def _of_columns(self, segments: Segments) -> Iterable[Parts]:
        try:
            return _different([values_of(segments, key) for key in self.key])[0]
        except MISMATCH:
            return []  # values of such a type are no keys: looking them up says so


def _named(names: Sequence[str], parts: Parts) -> Mapping[str, Any]:
    return dict(zip(names, parts, strict=True))


def _different(keys: Sequence[pa.Array]) -> tuple[list[Parts], Indices]:
    """The different keys, and for each row which it has."""
    values, codes = zip(*map(_coded, keys), strict=True)
    if len(keys) == 1:
        return [(value,) for value in values[0]], codes[0]
    rows, inverse = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)
    parts = [tuple(values[at][code] for at, code in enumerate(row)) for row in rows.tolist()]
    return parts, inverse.reshape(-1)


def _coded(column: pa.Array) -> tuple[list[Any], Indices]:
    """The different values of a column, null among them, and for each row which it has."""
    encoded = column.dictionary_encode("encode")
    return python_values(encoded.dictionary), encoded.indices.to_numpy()
