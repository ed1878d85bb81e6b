"""The states of a task, as functions get them, and what they leave behind.

A call of the user's function is whole or leaves nothing: what it has changed is taken back when it
raises, or when what it returned cannot be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onyx.codec.refusals import fits_alone, refusal, refuse, refused
from onyx.errors import UserFunctionError
from onyx.flow.apply import apply_to_columns
from onyx.flow.batch import Segment
from onyx.flow.columns.record_batch import Columns
from onyx.flow.leaves import Leaves, segments_of
from onyx.keystate.coded import Groups
from onyx.model.state_types import StateType
from onyx.operators.keyed import function_calls
from onyx.operators.keyed.checks import key_check, value_check
from onyx.operators.keyed.definition import KeyedFunction
from onyx.operators.keyed.function_calls import GroupState, Kept
from onyx.operators.keyed.states import Values
from onyx.operators.keyed.store import KeyedStore
from onyx.operators.keyed.timers import Timers
from onyx.operators.keyed.views import Changes, ListView, MapView, ValueView, View


class HeldStates:
    """The states that a job declares, and the calls of functions that change them."""

    def __init__(
        self,
        its: KeyedFunction,
        store: KeyedStore,
        timers: Timers | None,
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
        self._changes = Changes()
        views = {name: self._view(store, name, each) for name, each in its.states.items()}
        make = function_calls.of(views)
        self.state: GroupState = make(views, timers, self._changes, wall_ms)
        """What functions over segments get."""
        self._values = {
            name: Kept(held, its.states[name].value, value_check(name, its.states[name], refusal))
            for name, held in store.states.items()
            if isinstance(held, Values) and name in its.states
        }
        self._columns_of = function_calls.of(tuple(self._values))

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
