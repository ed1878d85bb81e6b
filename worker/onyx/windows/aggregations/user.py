"""A user's own aggregation: functions over single segments, record batches, or arrays of states.

With arrays its functions take the states of many groups at once. `init_array(window, count)` gives
an array with the first states of so many groups, or a dict of such arrays by name.
`fold_array(window, states, groups, rows)` gives the states after a batch: `groups` has for each row
of the record batch the index of its group in the states. `merge_array(window, one, other)` gives
the states of groups made of two each. States keep the types of `init_array`.

Where such states are not in arrays (tasks over dicts, sessions, states on the local disk) a state
is a number, or a dict of numbers by name, and the same functions are called with arrays of what a
batch touches. Rejected: the functions for single segments beside these, for such places. Two
definitions of one aggregation would differ some day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onyx.errors import UserFunctionError, describe_type
from onyx.flow.batch import Indices, as_columns, as_dicts
from onyx.flow.columns.record_batch import Columns, from_dicts
from onyx.keystate.coded import Groups, Keyed, Values
from onyx.keystate.copies import copied, copied_twice
from onyx.model.job import Window
from onyx.windows.aggregations.aggregation import Aggregation, Segments
from onyx.windows.aggregations.aggregation import States as Bucket
from onyx.windows.aggregations.array_forms import Column, States
from onyx.windows.user_functions import Call

NEEDED, OPTIONAL = ("init_array", "fold_array"), ("merge_array",)
_KINDS = "biuf"
"""Kinds of arrays that states may be in: bool, ints, floats."""


class UserAggregation(Aggregation):
    """The user's functions, which may change what they are given: so each gets its own copy."""

    closed = False

    def __init__(self, window: Window, calls: Mapping[str, Call]) -> None:
        super().__init__()
        self._window = window
        self._calls = calls
        self._create = calls["create_state_update"]
        self._apply = calls["apply_state_update"]
        self.mergeable = "super_aggregation" in calls

    def init(self) -> Any:
        """What the user's `init` returns, or a copy of the window's `init`."""
        if "init" in self._calls:
            return self._calls["init"](self._window)
        return copied(self._window.init)

    def create(self, state: Any, extracted: Any) -> Any:
        """A copy of what `create_state_update` returns."""
        return copied(self._create(self._window, state, extracted))

    def apply(self, state: Any, update: Any) -> Any:
        """Call `apply_state_update` with a copy of the update, which is recorded too."""
        return self._apply(self._window, state, copied(update))

    def step(self, state: Any, extracted: Any) -> tuple[Any, Any]:
        """Both calls for a segment: the copies are made at once."""
        update, given = copied_twice(self._create(self._window, state, extracted))
        return self._apply(self._window, state, given), update

    def merge(self, one: Any, other: Any) -> Any:
        """Call `super_aggregation`."""
        return self._calls["super_aggregation"](self._window, one, other)

    def view(self, state: Any) -> Any:
        """A copy."""
        return copied(state)

    def from_view(self, view: Any) -> Any:
        """A copy."""
        return copied(view)

    def dump(self, state: Any) -> Any:
        """A copy."""
        return copied(state)

    def load(self, data: Any) -> Any:
        """A copy."""
        return copied(data)


class ColumnsAggregation(UserAggregation):
    """One whose `create_state_update` gets a record batch: all segments of a batch that are in one
    extent and group, so that the user's code takes a step for these and none for each row."""

    def extract(self, segments: Segments) -> Any:
        """Columns; of dicts that do not fit together each by itself."""
        return columns_of(segments)

    def create(self, state: Any, extracted: Columns) -> Any:
        """A copy of what `create_state_update` returns for a part of a batch."""
        return super().create(state, extracted.record_batch)

    def step(self, state: Any, extracted: Columns) -> tuple[Any, Any]:
        """Both calls for a part of a batch."""
        return super().step(state, extracted.record_batch)

    def steps(self, keys: Keyed, extracted: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """A step for each group."""
        if not isinstance(extracted, Columns):
            return super().steps(keys, extracted)
        groups = keys if isinstance(keys, Groups) else Groups.of_rows(keys)
        ordered = extracted.take(np.argsort(groups.codes, kind="stable"))
        ends = np.cumsum(groups.counts()).tolist()
        bounds = zip([0, *ends], ends, strict=False)
        return groups.keys, [ordered.slice(first, end) for first, end in bounds]


def columns_of(segments: Segments) -> Columns | list[Columns]:
    """Segments as columns; dicts that do not fit together each by itself."""
    columns, kept, _ = as_columns(segments)
    return columns if kept is None else [from_dicts([each])[0] for each in as_dicts(segments)]


class UserArrayForm:
    """The states as columns: those of a dict in the order of its names."""

    def __init__(self, window: Window, calls: Mapping[str, Call], where: str) -> None:
        """
        Args:
            where: begins messages.

        Raises:
            UserFunctionError: `init_array` raises, or gives something else.
        """
        self._window = window
        self._calls = calls
        self._where = where
        self.names: tuple[str, ...] | None = None
        """The names of the arrays; None: there is one array without a name."""
        first = calls["init_array"](window, 1)
        if isinstance(first, Mapping):
            self.names = tuple(map(str, first))
        self._types: tuple[np.dtype[Any], ...] | None = None
        self._types = tuple(each.dtype for each in self._columns("init_array", first, 1))

    # As an array form.

    def first(self, many: int, values: Values) -> States:
        """The states of new groups."""
        return self._columns("init_array", self._calls["init_array"](self._window, many), many)

    def fold(self, states: States, codes: Indices, values: Any) -> States:
        """The states of groups after the rows of a batch."""
        rows = values.record_batch
        made = self._calls["fold_array"](self._window, self._given(states), codes, rows)
        return self._columns("fold_array", made, len(states[0]))

    def merge(self, one: States, other: States) -> States:
        """The states of groups made of two each."""
        given = self._given(one), self._given(other)
        made = self._calls["merge_array"](self._window, *given)
        return self._columns("merge_array", made, len(one[0]))

    def is_exact(self, values: Any) -> bool:
        """Nobody knows."""
        return False

    def finish(self, counts: Column | None, numbers: Column | None = None) -> None:
        """No engine of columns computes these."""

    def to_python(self, states: States) -> list[Any]:
        """Numbers, or dicts of them."""
        columns: list[list[Any]] = [each.tolist() for each in states]
        if self.names is None:
            return columns[0]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def from_python(self, states: Sequence[Any]) -> States | None:
        """The columns of such states; None: the types of `init_array` do not hold them."""
        assert self._types is not None, "known from the beginning"
        try:
            if self.names is None:
                values = [list(states)]
            else:
                values = [[state[name] for state in states] for name in self.names]
            columns = [np.array(each, kind) for each, kind in zip(values, self._types, strict=True)]
        except (TypeError, ValueError, KeyError, OverflowError):
            return None
        pairs = zip(columns, values, strict=True)
        return tuple(columns) if all(_same(column.tolist(), its) for column, its in pairs) else None

    def to_arrow(self, states: States) -> pa.Array:
        """The array, or a struct of all."""
        arrays = [pa.array(each) for each in states]
        if self.names is None:
            return arrays[0]
        return pa.StructArray.from_arrays(arrays, list(self.names))

    # What functions get and give.

    def _given(self, states: States) -> Any:
        """The states as functions have them: arrays of their own, which they may change."""
        columns = [each.copy() for each in states]
        if self.names is None:
            return columns[0]
        return dict(zip(self.names, columns, strict=True))

    def _columns(self, call: str, made: Any, many: int) -> States:
        if self.names is None:
            arrays = [made]
        elif isinstance(made, Mapping) and set(made) == set(self.names):
            arrays = [made[name] for name in self.names]
        else:
            raise self._wrong(call, f"must return a dict of {', '.join(self.names)}", made)
        for each in arrays:
            shape = isinstance(each, np.ndarray) and each.shape == (many,)
            if not shape or each.dtype.kind not in _KINDS:
                raise self._wrong(call, f"must return arrays of {many} numbers", each)
        types = self._types or tuple(each.dtype for each in arrays)
        if any(each.dtype != kind for each, kind in zip(arrays, types, strict=True)):
            names = ", ".join(map(str, types))
            raise self._wrong(
                call, f"must return arrays of the types of init_array ({names})", made
            )
        return tuple(arrays)

    def _wrong(self, call: str, rule: str, made: Any) -> UserFunctionError:
        what = f"{made.dtype} {made.shape}" if isinstance(made, np.ndarray) else describe_type(made)
        return UserFunctionError(f"{self._where}: {call} {rule}, not {what}")


class ArraysAggregation(Aggregation):
    """Computes states with the functions of the array form, however many there are."""

    merged_by = "merge_array"

    def __init__(self, window: Window, calls: Mapping[str, Call], where: str) -> None:
        """Arguments and errors as `UserArrayForm`."""
        super().__init__(where)
        self._arrays = UserArrayForm(window, calls, where)
        self.mergeable = "merge_array" in calls

    def array_form(self) -> UserArrayForm:
        """The user's."""
        return self._arrays

    def init(self) -> Any:
        """The state of a new group."""
        return self._arrays.to_python(self._arrays.first(1, ()))[0]

    def extract(self, segments: Segments) -> Any:
        """Columns; of dicts that do not fit together each by itself."""
        return columns_of(segments)

    def apply(self, state: Any, update: Columns) -> Any:
        """The state after some rows."""
        groups = np.zeros(len(update), np.intp)
        return self._arrays.to_python(self._arrays.fold(self._states([state]), groups, update))[0]

    def fold_groups(self, bucket: Bucket, groups: Groups, values: Values) -> None:
        """Fold all groups of a batch at once."""
        if not isinstance(values, Columns):
            self.fold(bucket, groups.rows(), list(values))
            return
        states = self._states([bucket[key] for key in groups.keys])
        found = self._arrays.fold(states, groups.codes, values)
        bucket.update(zip(groups.keys, self._arrays.to_python(found), strict=True))

    def merge(self, one: Any, other: Any) -> Any:
        """The state of an extent made of two."""
        merged = self._arrays.merge(self._states([one]), self._states([other]))
        return self._arrays.to_python(merged)[0]

    def view(self, state: Any) -> Any:
        """A value of its own."""
        return dict(state) if isinstance(state, dict) else state

    def dump(self, state: Any) -> Any:
        """The number, or a list of them."""
        return list(state.values()) if isinstance(state, dict) else state

    def load(self, data: Any) -> Any:
        """The state of that."""
        names = self._arrays.names
        return data if names is None else dict(zip(names, data, strict=True))

    def _states(self, states: list[Any]) -> States:
        found = self._arrays.from_python(states)
        if found is None:
            raise UserFunctionError(
                f"{self._where}: a refinement has made a state that the types of init_array do not "
                "hold"
            )
        return found


def _same(one: list[Any], other: list[Any]) -> bool:
    """Whether values are the same numbers, NaN included."""
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))
