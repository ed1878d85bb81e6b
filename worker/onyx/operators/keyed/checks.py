"""What may be put into a state: values of the type that the job declares.

A value that cannot travel between tasks cannot be recorded either, so it is refused at once, in the
function that puts it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.errors import UserFunctionError, describe_type
from onyx.model.state_types import ANY, StateType, ValueType

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

    def of(its: ValueType, *places: str) -> Check:
        where = f"state {name}, in {' in '.join(places)}," if places else f"state {name}"
        match its:
            case ValueType(name="list", item=ValueType() as item):
                return _items(where, of(item, "a list", *places))
            case ValueType(name="map", key=key, item=ValueType() as item):
                return _map(where, _key(where, key, refusal), of(item, "a map", *places))
            case ValueType(name="struct", fields=fields):
                return _struct(where, {key: of(each, key, *places) for key, each in fields})
            case ValueType(name="any"):
                return _anything(where, name, refusal)
        return _typed(f"{where} holds {its.name}", _TYPES[its.name], refusal)

    return of(declared.value)


def key_check(name: str, declared: StateType, refusal: Refusal) -> Check:
    """The check of the keys of a map."""
    return _key(f"state {name}", declared.key, refusal)


def _key(where: str, declared: str, refusal: Refusal) -> Check:
    if declared == ANY:
        checks = {kind: _key(where, kind.__name__, refusal) for kind in _KEY_TYPES}

        def some(value: Any) -> Any:
            if type(value) not in _KEY_TYPES:
                raise UserFunctionError(
                    f"{where} has keys of type str, int or bytes, not {describe_type(value)}"
                )
            return checks[type(value)](value)

        return some
    return _typed(f"{where} has keys of type {declared}", _TYPES[declared], refusal)


def _anything(where: str, name: str, refusal: Refusal) -> Check:
    def check(value: Any) -> Any:
        wrong = refusal({name: value})
        if wrong is not None:
            raise UserFunctionError(f"{where}: {wrong}")
        return value

    return check


def _items(where: str, check_item: Check) -> Check:
    def check(value: Any) -> Any:
        if type(value) not in (list, tuple):
            raise UserFunctionError(f"{where} holds a list, not {describe_type(value)}")
        return [check_item(each) for each in value]

    return check


def _map(where: str, check_key: Check, check_item: Check) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not dict:
            raise UserFunctionError(f"{where} holds a map, not {describe_type(value)}")
        return {check_key(key): check_item(each) for key, each in value.items()}

    return check


def _struct(where: str, checks: dict[str, Check]) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not dict:
            raise UserFunctionError(f"{where} holds a struct, not {describe_type(value)}")
        for name in value:
            if name not in checks:
                raise UserFunctionError(
                    f"{where} holds a struct with {', '.join(checks)}, not with {name!r}"
                )
        return {name: None if each is None else checks[name](each) for name, each in value.items()}

    return check


def _typed(what: str, wanted: type[Any], refusal: Refusal) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not wanted:
            if wanted is float and type(value) is int:
                return float(value)
            raise UserFunctionError(f"{what}, not {describe_type(value)}")
        if wanted is int and value not in _INTS:
            raise UserFunctionError(f"{what}, and this one takes more than 64 bits")
        if wanted is str and not value.isascii():
            wrong = refusal({"text": value})
            if wrong is not None:
                raise UserFunctionError(f"{what}: {wrong}")
        return value

    return check
