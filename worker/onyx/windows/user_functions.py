"""A user's own aggregations, triggers and refinements: looked up once; errors name the call.

Like a lifecycle's `calls`, a name stands for a function without arguments that returns
`{name of a call: function}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onyx.errors import UserError, UserFunctionError, describe
from onyx.flow.predicates import Resolve

Call = Callable[..., Any]


def find_calls(
    name: str, where: str, needed: tuple[str, ...], optional: tuple[str, ...], resolve: Resolve
) -> Mapping[str, Call]:
    """The functions behind `package.module:name`.

    Raises:
        UserError: it does not return a mapping with `needed`, and of `optional` at most.
    """
    calls = find_function(name, where, resolve)()
    known = (*needed, *optional)
    if not isinstance(calls, Mapping):
        raise UserError(
            f"{where}: {name} must return a dict with {', '.join(known)}, "
            f"not {type(calls).__name__}"
        )
    for key, call in calls.items():
        if key not in known or not callable(call):
            raise UserError(
                f"{where}: {name} returns {key!r}, which is not a function that is known here; "
                f"known are {', '.join(known)}"
            )
    check_needed(calls, needed, f"{where}: {name}")
    return {key: _naming(call, f"{where}: {key} of {name}") for key, call in calls.items()}


def check_needed(calls: Mapping[str, Call], needed: tuple[str, ...], where: str) -> None:
    """Make sure that a mapping has some functions.

    Raises:
        UserError: one is missing.
    """
    missing = [key for key in needed if key not in calls]
    if missing:
        raise UserError(f"{where} returns no {', '.join(missing)}; add them")


def find_function(name: str, where: str, resolve: Resolve) -> Call:
    """One function of the user, whose errors name it."""
    return _naming(resolve(name), f"{where}: {name}")


def _naming(call: Call, where: str) -> Call:
    def named(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except BaseException as error:
            raise UserFunctionError(f"{where} raised {describe(error)}") from error

    return named
