"""What another task keeps by key, and how the segments of one batch get it, in their own format.

Groups are equal here as they are in the task that keeps them (`keystate.groups`): the row of a
segment is found by its group, and not by the type that its key has in a column.

Dicts get a state as it is kept, so what one gets does not depend on the states that others of its
batch get. Columns get it as a column, so what does not fit into it with the others fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from onyx.errors import UserError
from onyx.flow.arrays import Indices
from onyx.flow.batch import Segments, format_of
from onyx.flow.columns.record_batch import Columns, from_dicts
from onyx.flow.columns.values import MISMATCH, to_array
from onyx.flow.groups.codes import KeyCodes
from onyx.flow.segment import JoinRefusal, Segment, SegmentFailure
from onyx.joins.enrichment import OCCUPIED, Enrichment, Joined, default_of, values_of
from onyx.joins.keys import NONE, kind_of
from onyx.keystate.copies import copied
from onyx.keystate.groups import group_value, hashable_key

Parts = tuple[Any, ...]
"""The values of the parts of a key."""


_MISSING = object()


class ForeignState:
    """The states of the groups of one batch. Not thread-safe."""

    def __init__(
        self,
        state: str,
        key: Sequence[str],
        column: str,
        names: Sequence[str] | None = None,
        default: Any = None,
    ) -> None:
        """
        Args:
            state: its name, for people.
            key: keys of a segment, whose values say which group is wanted.
            column: what the column with the states is called.
            names: what the parts of a group are called; None: a group is the value of one key.
            default: what segments get whose group has no state.
        """
        self.title = f"state {state}"
        self.key = tuple(key)
        self.column = column
        self.default = default
        self.states: Mapping[Any, Any] = {}
        """By group (`group_of`)."""
        self.refused: Mapping[Any, str] = {}
        """Groups whose state cannot be given, and why."""
        self._names = names
        self._columns: pa.RecordBatch = pa.record_batch({column: pa.nulls(0)})
        self._rows: dict[Any, int] | None = {}
        """The row of each group; None: they are still to be made."""
        self._misfits: dict[Any, str] = {}
        """Groups whose state is of another type than those of the others."""
        self._no_default = ""
        """Why the column cannot have the default; empty if it can."""

    def keys_of(self, segments: Segments) -> list[Any]:
        """The groups of some segments (`hashable_key`), each once. What is no group of any task is
        left out."""
        parts = format_of(segments).choose(self._of_dicts, self._of_columns)(segments)
        return list({key: None for each in parts if (key := self.group_of(each)) is not None})

    def groups_of(self, segments: list[Segment]) -> Iterator[Any]:
        """The group of each segment, as `group_of` gives it."""
        return map(self.group_of, self._of_dicts(segments))

    def take(
        self,
        keys: Sequence[Any],
        states: Sequence[Any],
        refused: Mapping[Any, str] = MappingProxyType({}),
    ) -> None:
        """Have the states of these groups, and no others."""
        self.states = dict(zip(keys, states, strict=True))
        self.refused = dict(refused)
        self._rows = None

    @property
    def columns(self) -> pa.RecordBatch:
        """The states that one column holds."""
        self._row_of()
        return self._columns

    def _row_of(self) -> dict[Any, int]:
        if self._rows is None:
            keys = list(self.states)
            rows, kept, failures = self._rows_of(list(self.states.values()))
            self._misfits = {
                keys[index]: f"the state of group {group_value(keys[index])!r}: {error}"
                for index, error in failures
            }
            there = keys if kept is None else [keys[index] for index in kept]
            self._columns = rows if there else self._columns.slice(0, 0)
            self._no_default = self._why_no_default()
            self._rows = {key: row for row, key in enumerate(there)}
        return self._rows

    def _why_no_default(self) -> str:
        kind = self._columns.column(0).type
        try:
            default_of(self.default, kind)
        except MISMATCH as error:
            return f"default is {self.default!r}, and the states have type {kind}: {error}"
        return ""

    def _rows_of(
        self, states: Sequence[Any]
    ) -> tuple[pa.RecordBatch, Indices | None, list[tuple[int, Exception]]]:
        """A row for each state, as `from_dicts` gives them."""
        column = self.column
        try:
            return pa.record_batch({column: to_array(states)}), None, []
        except MISMATCH:
            rows, kept, failures = from_dicts([{column: state} for state in states])
            return rows.record_batch, kept, failures

    def find(self, keys: Sequence[pa.Array], at: pa.Array | None = None) -> Indices:
        """For each key the index of its row; -1: it has none.

        Raises:
            UserError: the keys are none, or a state that is found cannot be given.
        """
        assert at is None, "validated: states have no versions"
        for each in keys:
            kind_of(each.type)
        different, codes = _different(keys)
        found = np.fromiter(map(self._find, different), np.intp, len(different))
        return found[codes]

    def _find(self, parts: Parts) -> int:
        key, rows = self.group_of(parts), self._row_of()
        row = NONE if key is None else rows.get(key, NONE)
        if row == NONE:
            refused = self.refused.get(key) or self._misfits.get(key) or self._no_default
            if refused:
                raise UserError(refused)
        return row

    def group_of(self, parts: Parts) -> Any:
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
    names = [str(number) for number in range(len(keys))]
    columns = Columns(pa.RecordBatch.from_arrays(list(keys), names=names))
    if len(keys) > 1:
        several = KeyCodes.of_parts(columns, names)
        return several.raws, several.codes
    found = KeyCodes.of_column(columns, names[0])
    return [(value,) for value in found.raws], found.codes


class Reading:
    """The join of a task with what another one keeps."""

    def __init__(self, kept: ForeignState, inner: bool = False) -> None:
        """`inner`: a segment that finds nothing ends here."""
        self.kept = kept
        self.inner = inner
        default = {} if kept.default is None else {kept.column: kept.default}
        self._rows = Enrichment(lambda: kept, kept.key, inner, (kept.column,), default=default)

    def of(self, segments: Segments) -> Joined:
        """The segments with the state of their group.

        A segment fails whose state cannot be given, or that has a value of its own where it would
        get one.
        """
        return format_of(segments).choose(self._of_dicts, self._of_columns)(segments)

    def _of_columns(self, columns: Columns) -> Joined:
        return self._rows.of(columns)

    def _of_dicts(self, segments: list[Segment]) -> Joined:
        kept, column = self.kept, self.kept.column
        joined: list[Segment] = []
        there: list[int] = []
        failures: list[SegmentFailure] = []
        missed = 0
        for index, key in enumerate(kept.groups_of(segments)):
            segment = segments[index]
            if segment.get(column) is not None:
                failures.append((index, JoinRefusal(OCCUPIED.format(column, kept.title))))
                continue
            if key in kept.refused:
                why = f"join with {kept.title}: {kept.refused[key]}"
                failures.append((index, JoinRefusal(why)))
                continue
            state = _MISSING if key is None else kept.states.get(key, _MISSING)
            if state is _MISSING:
                missed += 1
                if self.inner:
                    continue
                state = kept.default
            joined.append({**segment, column: copied(state)})
            there.append(index)
        all_there = len(there) == len(segments)
        return Joined(joined, None if all_there else np.array(there, np.intp), failures, missed)
