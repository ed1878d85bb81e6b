"""What is done when a trigger fires: the user's `sync` and `emit` are called.

Whoever reads an error of theirs must find the trigger in the job and the line in the code, so both
are told here; nothing of the state is, for it is the user's data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from onyx.codec.refusals import refusal
from onyx.errors import UserFunctionError
from onyx.flow.batch import Segment
from onyx.flow.leaves import describe_type
from onyx.model.job import Trigger
from onyx.task.failures.failure import blamed
from onyx.windows.firing import Firing

Function = Callable[..., Any]
Where = Callable[[], str]
"""What is at fault, said only when something is."""


def call_sync(functions: Mapping[str, Function], event: Any, firing: Firing) -> None:
    """Call the trigger's `sync`, if it has one.

    Raises:
        UserFunctionError: it has raised.
    """
    name = firing.trigger.sync
    if name is not None:
        _call(functions[name], partial(_where, firing.trigger, "sync", name), event, firing)


def call_emit(functions: Mapping[str, Function], event: Any, firing: Firing) -> list[Segment]:
    """The segments that the trigger's `emit` gives; none without one.

    Raises:
        UserFunctionError: it has raised, or gave something else, or what cannot be sent.
    """
    name = firing.trigger.emit
    if name is None:
        return []
    where = partial(_where, firing.trigger, "emit", name)
    return _segments(where, _call(functions[name], where, event, firing))


def _call(function: Function, where: Where, event: Any, firing: Firing) -> Any:
    arguments = (event, firing.window, firing.trigger, firing.state_event(), firing.state)
    try:
        return function(*arguments)
    except BaseException as error:
        raise UserFunctionError(blamed(where(), error)) from error


def _where(trigger: Trigger, key: str, name: str) -> str:
    return f"trigger {trigger.id or trigger.type} of window {trigger.window_id}: {key} {name}"


def _segments(where: Where, made: Any) -> list[Segment]:
    """What an emit function returned: one segment, several or none."""
    if made is None:
        return []
    found = [made] if isinstance(made, dict) else made
    if not isinstance(found, list | tuple):
        raise _refused(where(), describe_type(made))
    for each in found:
        if not isinstance(each, dict):
            raise _refused(where(), f"{describe_type(made)} that holds {describe_type(each)}")
        error = refusal(each)
        if error is not None:
            raise UserFunctionError(f"{where()} returned a segment that cannot be sent: {error}")
    return list(found)


def _refused(where: str, found: str) -> UserFunctionError:
    return UserFunctionError(
        f"{where} returned {found}: it must return a dict, a list of dicts or None"
    )
