"""Why a value cannot travel between tasks: where it is, what it is, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, time
from typing import Any

from onyx.codec.kinds import KINDS, NESTING_MAX, TEXT, zone_is_wrong
from onyx.errors import describe_type
from onyx.flow.instants import has_utc

_HINTS = {
    "datetime": "give it a time zone, as in value.replace(tzinfo=datetime.UTC)",
    "time": "leave out its time zone, or use a datetime",
    "set": "make it a list",
    "frozenset": "make it a list",
    "int": "make it a str, or a Decimal",
    "bytearray": "make it bytes",
    "memoryview": "make it bytes",
    "complex": "make it a list of two floats",
    "UUID": "make it a str",
}
_USABLE = (
    "use None, bool, int, float, str, bytes, date, time, timedelta, Decimal, a datetime with a "
    "time zone, or lists, tuples and dicts of these"
)


def reason(value: Any, keys: frozenset[type] = TEXT) -> str:
    """What is wrong with one value, and what to do; empty if nothing is.

    Args:
        keys: types that keys of dicts may have.
    """
    return next((f"{what}: {hint}" for _, what, hint in wrong(value, "", -1, keys)), "")


_Wrong = Iterator[tuple[str, str, str]]
"""Where, what, and what to do."""


def wrong(value: Any, path: str, depth: int, keys: frozenset[type] = TEXT) -> _Wrong:
    """What cannot travel in a value, from where it is."""
    kind = type(value)
    if kind in (list, tuple, dict) and depth >= NESTING_MAX:
        yield path, f"a {kind.__name__} nested deeper than {NESTING_MAX}", "make it flatter"
    elif kind is dict:
        yield from _wrong_dict(value, path, depth, keys)
    elif kind is list or kind is tuple:
        for index, each in enumerate(value):
            yield from wrong(each, f"{path}[{index}]", depth + 1, keys)
    elif kind not in KINDS:
        yield path, describe_type(value), _hint(kind)
    elif kind is datetime and value.tzinfo is not None and not has_utc(value):
        yield (
            path,
            "a datetime that in UTC is outside of the years 1 to 9999",
            "take a moment within",
        )
    elif kind in (datetime, time) and zone_is_wrong(value):
        which = "without" if kind is datetime else "with"
        yield path, f"a {kind.__name__} {which} a time zone", _HINTS[kind.__name__]
    elif kind is int and not -(2**63) <= value < 2**64:
        yield path, "an int beyond 64 bits", _HINTS["int"]
    elif kind is str and not _encodes(value):
        yield path, "a str with half of a surrogate pair", "leave such characters out"


def _wrong_dict(value: Mapping[Any, Any], path: str, depth: int, keys: frozenset[type]) -> _Wrong:
    for key, each in value.items():
        if type(key) not in keys:
            what = "make the keys of dicts str" if keys is TEXT else _hint(type(key))
            yield path, f"a key that is {describe_type(key)}", what
        elif type(key) is str and not _encodes(key):
            yield path, "a key with half of a surrogate pair", "leave such characters out"
        else:
            yield from wrong(each, f"{path}.{key}" if path else str(key), depth + 1, keys)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hint(kind: type) -> str:
    if kind.__module__.partition(".")[0] == "numpy":
        convert = "item" if hasattr(kind, "item") and kind.__name__ != "ndarray" else "tolist"
        return f"convert it with .{convert}()"
    if kind.__name__ in _HINTS:
        return _HINTS[kind.__name__]
    for base in kind.__mro__[1:]:
        if base in KINDS and base is not type(None):
            return f"convert it with {base.__name__}(), for its subclass would arrive as that"
    return _USABLE
