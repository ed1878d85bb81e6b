"""Calls of functions with state: what they get beside a segment or record batch, and leave behind.

A call of the user's function is whole or leaves nothing: what it has changed is taken back when it
raises, or when what it returned cannot be sent.

Beside a segment it gets the states and timers of its group, each state as an attribute of one
object, which is the same one for all groups of a task and belongs to the group of the call: a
function does not keep it. Beside a record batch it gets the states of its groups, each as a column
with a value for each group of the batch. What it sets of these is kept apart until its call is
through, so a call that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from onyx.codec.refusals import fits_alone, refusal, refuse, refused
from onyx.errors import UserFunctionError, describe_type
from onyx.flow.batch import Segment
from onyx.flow.columns.record_batch import Columns
from onyx.flow.leaves import Leaves, apply_to_columns, segments_of
from onyx.keystate.coded import Groups
from onyx.keystate.groups import group_value
from onyx.model.state_types import StateType, ValueType
from onyx.operators.keyed.checks import Check, key_check, value_check
from onyx.operators.keyed.definition import KeyedFunction
from onyx.operators.keyed.states import Values
from onyx.operators.keyed.store import KeyedStore
from onyx.operators.keyed.timers import CLOCKS, Clock, KeyTimers
from onyx.operators.keyed.views import CallChanges, ListView, MapView, ValueView, View

_TIMES_MS = range(-(2**53), 2**53)
_PLAIN: dict[str, pa.DataType] = {
    "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string(),
    "bytes": pa.binary(),
}  # fmt: skip


class DeclaredStates:
    """The states that a job declares, and the calls of functions that change them."""

    def __init__(
        self,
        its: KeyedFunction,
        store: KeyedStore,
        timers: KeyTimers | None,
        params: Sequence[Any],
        wall_ms: Callable[[], int],
    ) -> None:
        """
        Args:
            store: gets them.
            timers: those that functions set; None where nothing is called when one is due.
            params: leading arguments of the functions.
            wall_ms: the time of the worker.
        """
        self._params = params
        self._changes = CallChanges()
        views = {name: self._view(store, name, each) for name, each in its.states.items()}
        make = group_state_of(views)
        self.state: GroupState = make(views, timers, self._changes, wall_ms)
        """What functions over segments get."""
        self._values = {
            name: ColumnSource(
                held, its.states[name].value, value_check(name, its.states[name], refusal)
            )
            for name, held in store.states.items()
            if isinstance(held, Values) and name in its.states
        }
        self._columns_of = column_state_of(tuple(self._values))

    def _view(self, store: KeyedStore, name: str, declared: StateType) -> View:
        check = value_check(name, declared, refusal)
        if declared.shape == "value":
            return ValueView(store.values(name), check, self._changes, declared.value.is_plain)
        if declared.shape == "list":
            return ListView(store.lists(name), check, self._changes)
        return MapView(store.maps(name), check, key_check(name, declared, refusal), self._changes)

    def call(self, fn: Callable[..., Any], group: Any, argument: Any) -> tuple[list[Segment], bool]:
        """Call a function for a group.

        Args:
            group: its key (`keystate.groups.hashable_key`).
            argument: the one before the state: a segment, or a timer.

        Returns:
            What it has made, and whether it has changed a state.

        Raises:
            Exception: what it has raised, or why what it returned cannot be sent. Nothing of the
                call is left.
        """
        assert not self._changes.backs, "the call before has kept its changes, or taken them back"
        self.state.turn_to(group)
        try:
            made = _sendable(fn(*self._params, argument, self.state))
        except BaseException:
            self._changes.take_back()
            raise
        return made, self._changes.keep()

    def call_columns(
        self, fn: Callable[..., Any], groups: Groups, columns: Columns
    ) -> tuple[Leaves, bool]:
        """Call a function over columns.

        Args:
            groups: of the rows.

        Returns:
            The leaves, or all rows as failures, if one has failed, and then nothing of the call is
            left; and whether it has set a state.
        """
        assert len(groups) == len(columns), "each row has a group"
        state = self._columns_of(self._values, groups)
        made = apply_to_columns(lambda *given: fn(*given, state), self._params, columns)
        leaves = refuse(made)
        if leaves.failures:
            return _all_failed(leaves, columns), False
        return leaves, state.keep()

    def forget(self, group: Any) -> None:
        """A group loses its states."""
        self.state.turn_to(group)
        self.state.clear()
        self._changes.keep()


def _sendable(result: Any) -> list[Segment]:
    """The segments that a function has returned. Raises why one cannot be sent."""
    if result is None:
        return []
    if type(result) is dict and fits_alone(result):
        return [result]
    made = list(segments_of(result))
    found = refused(made)
    if found:
        raise found[0][1]
    return made


def _all_failed(leaves: Leaves, columns: Columns) -> Leaves:
    """All rows of a batch, because one has failed: what the function sets is of all rows."""
    first, error = leaves.failures[0]
    if len(leaves.failures) < len(columns):
        error = UserFunctionError(
            f"row {first} has failed, and with it the batch, because the function has state, which "
            f"cannot be without a row: {error}"
        )
    nothing = np.empty(0, dtype=np.intp)
    return Leaves(columns.slice(0, 0), nothing, None, [(n, error) for n in range(len(columns))])


class GroupState:
    """The states of one group at a time. `of` makes a class with the names of a task."""

    __slots__ = (
        "_changes", "_group", "_timers", "_views", "_wall_ms", "ending", "refused", "watermark",
    )  # fmt: skip

    def __init__(
        self,
        views: Mapping[str, View],
        timers: KeyTimers | None,
        changes: CallChanges,
        wall_ms: Callable[[], int],
    ) -> None:
        """
        Args:
            timers: of the task; None where nothing is called when one is due.
            wall_ms: the time of the worker.
        """
        self._views = tuple(views.values())
        self._timers = timers
        self._changes = changes
        self._wall_ms = wall_ms
        self._group: Any = None
        self.watermark: int | None = None
        self.ending = False
        """Behind the end of event time no timers are set any more."""
        self.refused = 0
        """How many would have been."""

    def turn_to(self, group: Any) -> None:
        """The states of this group from now on (`keystate.groups.hashable_key`)."""
        self._group = group
        for view in self._views:
            view.group = group

    @property
    def key(self) -> Any:
        """The value of the group's key, a list of them where `groupByKey` names several."""
        return group_value(self._group)

    @property
    def now_ms(self) -> int:
        """The time of the worker, in milliseconds since 1970."""
        return self._wall_ms()

    @property
    def event_time_ms(self) -> int | None:
        """How far event time has come, in milliseconds since 1970; None: that is not known yet."""
        return self.watermark

    def clear(self) -> None:
        """The group loses all its states. Its timers stay."""
        for view in self._views:
            view.clear()

    def timer(self, name: str) -> int | None:
        """When a timer of the group is due; None: it is not set."""
        found = self._found("timer").get(self._group, name)
        return None if found is None else found[1]

    def set_timer(self, name: str, at_ms: int, clock: Clock = "event-time") -> None:
        """Have `onTimer` called when a clock has come to a time. A timer of this name that the
        group has is moved.

        Args:
            at_ms: milliseconds since 1970. A time that is past is due at once.
            clock: `event-time`, the watermark of the task, or `processing-time`, the time of the
                worker.

        Raises:
            UserFunctionError: the task has no `onTimer`, or an argument is wrong.
        """
        timers = self._found("set_timer")
        if type(name) is not str or type(at_ms) is not int or at_ms not in _TIMES_MS:
            raise UserFunctionError(
                "set_timer takes a name and a whole number of milliseconds since 1970, not "
                f"{describe_type(name)} and {describe_type(at_ms)}"
            )
        if clock not in CLOCKS:
            raise UserFunctionError(f"set_timer: clock is {' or '.join(CLOCKS)}")
        if self.ending:
            self.refused += 1
        else:
            self._swap(timers, name, (clock, at_ms))

    def delete_timer(self, name: str) -> None:
        """The group has no timer of this name any more."""
        self._swap(self._found("delete_timer"), name, None)

    def _swap(self, timers: KeyTimers, name: str, timer: tuple[Clock, int] | None) -> None:
        before = timers.swap(self._group, name, timer)
        self._changes.add(timers.swap, self._group, name, before)

    def _found(self, what: str) -> KeyTimers:
        if self._timers is None:
            raise UserFunctionError(
                f"{what} is called, but the task has no onTimer: give it a function that is called "
                "when a timer is due"
            )
        return self._timers


def group_state_of(views: Mapping[str, View]) -> type[GroupState]:
    """A class with a property for each state of a task. Others are refused, so a name that is
    misspelt is an error and no state that is lost."""
    properties = {name: view.attribute() for name, view in views.items()}
    return type("State", (GroupState,), {"__slots__": (), **properties})


class ColumnSource(NamedTuple):
    """A state of a task."""

    values: Values
    type: ValueType
    check: Check
    """What Arrow allows and the type does not, such as a null in a list."""


class ColumnState:
    """The states of the groups of one batch. `of` makes a class with the names of a task."""

    __slots__ = ("_found", "_groups", "_nested", "_states", "_written")

    def __init__(self, states: Mapping[str, ColumnSource], groups: Groups) -> None:
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


def column_state_of(names: tuple[str, ...]) -> type[ColumnState]:
    """A class with a property for each state, which refuses others."""
    return type("State", (ColumnState,), {"__slots__": (), **{n: _attribute(n) for n in names}})
