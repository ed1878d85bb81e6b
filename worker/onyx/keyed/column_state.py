"""What a function over columns gets beside a record batch: the states of its groups, each as a
column with a value for each group of the batch.

What the function sets is kept apart until its call is through, so a call that raises has changed
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from onyx.errors import UserFunctionError, describe_type
from onyx.keyed.states import Values
from onyx.model.state_types import StateType
from onyx.windows.coded import Groups
from onyx.windows.groups import group_value

_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string(),
    "bytes": pa.binary(),
}  # fmt: skip


class ColumnState:
    """The states of the groups of one batch. `of` makes a class with the names of a task."""

    __slots__ = ("_found", "_groups", "_states", "_written")

    def __init__(self, states: Mapping[str, tuple[Values, StateType]], groups: Groups) -> None:
        self._states = states
        self._groups = groups
        self._found: dict[str, pa.Array] = {}
        self._written: dict[str, pa.Array] = {}

    @property
    def keys(self) -> list[Any]:
        """The key of each group of the batch."""
        return [group_value(key) for key in self._groups.keys]

    @property
    def groups(self) -> pa.Array:
        """For each row the index of its group in `keys`."""
        return pa.array(np.asarray(self._groups.codes, np.int64))

    def read(self, name: str) -> pa.Array:
        """The values of a state, null for groups that have none."""
        if name in self._written:
            return self._written[name]
        found = self._found.get(name)
        if found is None:
            values, declared = self._states[name]
            held = values.get_all(self._groups.keys)
            found = self._found[name] = pa.array(held, _TYPES[declared.value])
        return found

    def write(self, name: str, column: Any) -> None:
        """Set the values of a state for all groups of the batch; null removes."""
        declared = self._states[name][1]
        wanted = _TYPES[declared.value]
        try:
            made = column if isinstance(column, pa.Array) else pa.array(column)
            if isinstance(column, pa.ChunkedArray):
                made = column.combine_chunks()
            made = made if made.type == wanted else made.cast(wanted)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise UserFunctionError(
                f"state {name} is set to {describe_type(column)}, of which no column of "
                f"{wanted} is made: {error}"
            ) from error
        if len(made) != self._groups.many:
            raise UserFunctionError(
                f"state {name} is set to {len(made)} values for {self._groups.many} groups: it "
                "takes one for each of state.keys"
            )
        self._written[name] = made

    def keep(self) -> bool:
        """What was set stays; whether there was something."""
        keys = self._groups.keys
        for name, column in self._written.items():
            values = self._states[name][0]
            if not column.null_count:
                values.put_all(keys, column.to_pylist())
                continue
            for key, value in zip(keys, column.to_pylist(), strict=True):
                if value is None:
                    values.remove(key)
                else:
                    values.put(key, value)
        return bool(self._written)


def _attribute(name: str) -> property:
    def read(state: ColumnState) -> pa.Array:
        return state.read(name)

    def write(state: ColumnState, column: Any) -> None:
        state.write(name, column)

    return property(read, write)


def of(names: tuple[str, ...]) -> type[ColumnState]:
    """A class with a property for each state, which refuses others."""
    return type("State", (ColumnState,), {"__slots__": (), **{n: _attribute(n) for n in names}})
