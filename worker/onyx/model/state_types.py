"""Types of states by key, as a manifest gives them: `value[int]`, `list`, `map[str, float]`.

The first word says what a key has: one value, a list, or a map. The words in brackets say of what,
by the names that Python has for these types; without brackets, of anything that a segment may hold.
"""

from __future__ import annotations

import keyword
import re
from typing import Literal, get_args

import msgspec

ShapeName = Literal["value", "list", "map"]
SHAPES: tuple[ShapeName, ...] = get_args(ShapeName)
ANY = "any"
VALUES = ("any", "bool", "int", "float", "str", "bytes")
"""Types of values."""
KEYS = ("str", "int", "bytes")
"""Types of the keys of a map."""
STATES_MAX = 64
NAME_CHARACTERS_MAX = 63
RESERVED = frozenset(
    {
        "clear", "delete_timer", "event_time_ms", "key", "now_ms", "set_timer", "timer",
    }
)  # fmt: skip
"""Names of what a function finds beside its states."""
_TEXT = re.compile(r"\s*([a-z]+)\s*(?:\[\s*([a-z]+)\s*(?:,\s*([a-z]+)\s*)?\]\s*)?\Z")


class StateType(msgspec.Struct, frozen=True):
    """The type of a state."""

    shape: ShapeName
    value: str = ANY
    """One of VALUES: the type of the value, or of what the list or map holds."""
    key: str = ANY
    """The type of the keys of a map: one of KEYS, or any of these."""


def parse_state_type(text: str) -> StateType:
    """The type of this name.

    Raises:
        ValueError: there is none; the message says what is wrong.
    """
    found = _TEXT.match(text)
    if found is None:
        raise ValueError("is no type of a state")
    shape, first, second = found.groups()
    if shape not in SHAPES:
        raise ValueError(f"is no type of a state: {shape!r} is not {', '.join(SHAPES)}")
    if shape == "map" and first is not None and second is None:
        raise ValueError("is a map with one type: it has two, of its keys and its values")
    if shape != "map" and second is not None:
        raise ValueError(f"is a {shape} with two types: it has one")
    key, value = (first, second) if shape == "map" else (ANY, first)
    key, value = key or ANY, value or ANY
    if key not in (ANY, *KEYS):
        raise ValueError(f"has keys of type {key!r}, which are {', '.join(KEYS)}")
    if value not in VALUES:
        raise ValueError(f"holds {value!r}, which is not {', '.join(VALUES)}")
    return StateType(shape, value, key)


def is_state_name(text: str) -> bool:
    """Whether a function can have a state of this name as an attribute."""
    fits = text.isidentifier() and text.isascii() and not keyword.iskeyword(text)
    return fits and not text.startswith("_") and len(text) <= NAME_CHARACTERS_MAX
