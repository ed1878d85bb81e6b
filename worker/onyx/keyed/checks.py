"""What may be put into a state: values of the type that the job declares.

A value that cannot travel between tasks cannot be recorded either, so it is refused at once, in the
function that puts it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.errors import UserFunctionError, describe_type
from onyx.model.state_types import ANY, StateType

Check = Callable[[Any], Any]
"""Gives back the value as it is kept. Raises UserFunctionError: it cannot be."""
Refusal = Callable[[Any], Exception | None]
"""Why a segment cannot travel."""
_INTS = range(-(2**63), 2**64)
_TYPES: dict[str, type[Any]] = {
    "bool": bool, "int": int, "float": float, "str": str, "bytes": bytes,
}  # fmt: skip
_KEY_TYPES = (str, int, bytes)


def value_check(name: str, declared: StateType, refusal: Refusal) -> Check:
    """The check of what a state of this name holds."""
    if declared.value == ANY:

        def anything(value: Any) -> Any:
            wrong = refusal({name: value})
            if wrong is not None:
                raise UserFunctionError(f"state {name}: {wrong}")
            return value

        return anything
    return _typed(f"state {name} holds {declared.value}", _TYPES[declared.value], refusal)


def key_check(name: str, declared: StateType) -> Check:
    """The check of the keys of a map."""
    if declared.key == ANY:

        def some(value: Any) -> Any:
            if type(value) not in _KEY_TYPES or (type(value) is int and value not in _INTS):
                raise UserFunctionError(
                    f"state {name} has keys of type str, int or bytes, not {describe_type(value)}"
                )
            return value

        return some
    return _typed(f"state {name} has keys of type {declared.key}", _TYPES[declared.key], None)


def _typed(what: str, wanted: type[Any], refusal: Refusal | None) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not wanted:
            if wanted is float and type(value) is int:
                return float(value)
            raise UserFunctionError(f"{what}, not {describe_type(value)}")
        if wanted is int and value not in _INTS:
            raise UserFunctionError(f"{what}, and this one takes more than 64 bits")
        if wanted is str and refusal is not None and not value.isascii():
            wrong = refusal({"text": value})
            if wrong is not None:
                raise UserFunctionError(f"{what}: {wrong}")
        return value

    return check
