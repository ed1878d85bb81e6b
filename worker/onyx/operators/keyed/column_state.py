"""What a function over columns gets beside a record batch: the states of its groups, each as a
column with a value for each group of the batch.

What the function sets is kept apart until its call is through, so a call that raises has changed
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from onyx.errors import UserFunctionError, describe_type
from onyx.keystate.coded import Groups
from onyx.keystate.groups import group_value
from onyx.model.state_types import ValueType
from onyx.operators.keyed.checks import Check
from onyx.operators.keyed.states import Values

_PLAIN: dict[str, pa.DataType] = {
    "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string(),
    "bytes": pa.binary(),
}  # fmt: skip


class Kept(NamedTuple):
    """A state of a task."""

    values: Values
    type: ValueType
    check: Check
    """What Arrow allows and the type does not, such as a null in a list."""


class ColumnState:
    """The states of the groups of one batch. `of` makes a class with the names of a task."""

    __slots__ = ("_found", "_groups", "_nested", "_states", "_written")

    def __init__(self, states: Mapping[str, Kept], groups: Groups) -> None:
        self._states = states
        self._groups = groups
        self._found: dict[str, pa.Array] = {}
        self._written: dict[str, pa.Array] = {}
        self._nested: dict[str, list[Any]] = {}
        """What was written of states whose types nest, as Python has it."""

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
            state = self._states[name]
            held = state.values.get_all(self._groups.keys)
            found = self._found[name] = pa.array(held, _arrow_type(state.type))
        return found

    def write(self, name: str, column: Any) -> None:
        """Set the values of a state for all groups of the batch; null removes."""
        state = self._states[name]
        wanted = _arrow_type(state.type)
        try:
            if isinstance(column, pa.ChunkedArray):
                made = column.combine_chunks()
            elif isinstance(column, pa.Array):
                made = column
            else:
                made = pa.array(column, None if state.type.is_plain else wanted)
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
        if not state.type.is_plain:
            values = made.to_pylist(maps_as_pydicts="strict")
            self._nested[name] = [None if each is None else state.check(each) for each in values]
        self._written[name] = made

    def keep(self) -> bool:
        """What was set stays; whether there was something."""
        keys = self._groups.keys
        for name, column in self._written.items():
            values = self._states[name].values
            written = self._nested.get(name)
            written = column.to_pylist() if written is None else written
            if not column.null_count:
                values.put_all(keys, written)
                continue
            for key, value in zip(keys, written, strict=True):
                if value is None:
                    values.remove(key)
                else:
                    values.put(key, value)
        return bool(self._written)


def _arrow_type(its: ValueType) -> pa.DataType:
    """The type of a column that holds values of a type."""
    match its:
        case ValueType(name="list", item=ValueType() as item):
            return pa.list_(_arrow_type(item))
        case ValueType(name="map", key=key, item=ValueType() as item):
            return pa.map_(_PLAIN[key], _arrow_type(item))
        case ValueType(name="struct", fields=fields):
            return pa.struct([(name, _arrow_type(each)) for name, each in fields])
    return _PLAIN[its.name]


def _attribute(name: str) -> property:
    def read(state: ColumnState) -> pa.Array:
        return state.read(name)

    def write(state: ColumnState, column: Any) -> None:
        state.write(name, column)

    return property(read, write)


def of(names: tuple[str, ...]) -> type[ColumnState]:
    """A class with a property for each state, which refuses others."""
    return type("State", (ColumnState,), {"__slots__": (), **{n: _attribute(n) for n in names}})
