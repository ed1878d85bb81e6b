"""Types of states by key, as a manifest gives them: `value[int]`, `list`, `map[str, list[float]]`.

The first word says what a key has: one value, a list, or a map. The words in brackets say of what,
by the names that Python has for these types; without brackets, of anything that a segment may hold.
Types nest: `list[struct[page: str, seconds: float]]` holds dicts with these keys.

A state is recorded by the items of its first list or map; what is nested in an item is recorded
with it. To record lists in lists item by item was rejected: each would need a place of its own in
the state log, and a function can have the inner key in the key of the map.
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
"""Types of values that hold no others."""
NESTED = ("list", "map", "struct")
KEYS = ("str", "int", "bytes")
"""Types of the keys of a map."""
STATES_MAX = 64
NAME_CHARACTERS_MAX = 63
TYPE_CHARACTERS_MAX = 1_024
DEPTH_MAX = 16
RESERVED = frozenset(
    {
        "clear", "delete_timer", "event_time_ms", "key", "now_ms", "set_timer", "timer",
    }
)  # fmt: skip
"""Names of what a function finds beside its states."""
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[\[\],:])")


class ValueType(msgspec.Struct, frozen=True):
    """The type of a value, or of what a list or map holds."""

    name: str = ANY
    """One of VALUES or of NESTED."""
    key: str = ANY
    """The type of the keys of a map: one of KEYS, or any of these."""
    item: ValueType | None = None
    """What a list or map holds."""
    fields: tuple[tuple[str, ValueType], ...] = ()
    """The keys of a struct, each with its type. Any of them may be missing."""

    def __str__(self) -> str:
        if self.name == "struct":
            return f"struct[{', '.join(f'{name}: {its}' for name, its in self.fields)}]"
        if self.item is None:
            return self.name
        return f"{self.name}[{f'{self.key}, ' if self.name == 'map' else ''}{self.item}]"

    @property
    def is_plain(self) -> bool:
        """Whether nothing can change a value."""
        return self.name in VALUES and self.name != ANY

    @property
    def is_columnar(self) -> bool:
        """Whether a column can hold values of this type."""
        return ANY not in (self.name, self.key if self.name == "map" else "") and all(
            each.is_columnar for each in self._parts
        )

    @property
    def has_map(self) -> bool:
        """Whether a map is in it."""
        return self.name == "map" or any(each.has_map for each in self._parts)

    def fits(self, wider: ValueType) -> bool:
        """Whether each value of this type is one of another type."""
        if wider.name == ANY:
            return True
        if self.name != wider.name or wider.key not in (ANY, self.key):
            return False
        theirs = dict(wider.fields)
        return all(name in theirs and its.fits(theirs[name]) for name, its in self.fields) and (
            self.item is None or wider.item is None or self.item.fits(wider.item)
        )

    @property
    def _parts(self) -> tuple[ValueType, ...]:
        inner = () if self.item is None else (self.item,)
        return inner + tuple(each for _, each in self.fields)


class StateType(msgspec.Struct, frozen=True):
    """The type of a state."""

    shape: ShapeName
    value: ValueType = ValueType()
    """The type of the value, or of what the list or map holds."""
    key: str = ANY
    """The type of the keys of a map: one of KEYS, or any of these."""

    def fits(self, wider: StateType) -> bool:
        """Whether each state of this type is one of another type."""
        same = self.shape == wider.shape and wider.key in (ANY, self.key)
        return same and self.value.fits(wider.value)


def parse_state_type(text: str) -> StateType:
    """The type of this name.

    Raises:
        ValueError: there is none; the message says what is wrong.
    """
    if len(text) > TYPE_CHARACTERS_MAX:
        raise ValueError(f"has {len(text)} characters, more than {TYPE_CHARACTERS_MAX}")
    tokens = _StateTokens(text)
    shape = tokens.take()
    if shape == "value":
        found = StateType("value", _bracketed(tokens, "value", 0))
    elif shape == "list":
        found = StateType("list", _bracketed(tokens, "list", 0))
    elif shape == "map":
        key, value = _of_map(tokens, 0)
        found = StateType("map", value, key)
    else:
        raise ValueError(f"is no type of a state: {shape!r} is not {', '.join(SHAPES)}")
    if tokens.current:
        raise ValueError(f"is no type of a state: {tokens.current!r} is behind its end")
    return found


class _StateTokens:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.current = ""
        self.take()

    def take(self) -> str:
        """The present word or sign; the next one becomes the present one."""
        taken, rest = self.current, self._text[self._at :]
        found = _TOKEN.match(rest)
        if found is None and rest.strip():
            raise ValueError(f"is no type of a state: {rest.strip()[0]!r} is in it")
        self.current = "" if found is None else found[1]
        self._at += len(rest) if found is None else found.end()
        return taken

    def took(self, sign: str) -> bool:
        """Whether this is the present one, which is taken then."""
        if self.current == sign:
            self.take()
            return True
        return False

    def close(self, what: str) -> None:
        """The closing bracket of a type."""
        if self.current == ",":
            raise ValueError(f"is a {what} with two types: it has one")
        if not self.took("]"):
            raise ValueError(f"is no type of a state: a bracket of {what} is not closed")


def _value(tokens: _StateTokens, depth: int) -> ValueType:
    if depth > DEPTH_MAX:
        raise ValueError(f"nests deeper than {DEPTH_MAX}")
    name = tokens.take()
    if name == "list":
        return ValueType("list", item=_bracketed(tokens, name, depth))
    if name == "map":
        key, item = _of_map(tokens, depth)
        return ValueType("map", key, item)
    if name == "struct":
        return ValueType("struct", fields=_fields(tokens, depth))
    if name not in VALUES:
        raise ValueError(f"holds {name!r}, which is not {', '.join((*VALUES, *NESTED))}")
    return ValueType(name)


def _bracketed(tokens: _StateTokens, what: str, depth: int) -> ValueType:
    if not tokens.took("["):
        return ValueType()
    found = _value(tokens, depth + 1)
    tokens.close(what)
    return found


def _of_map(tokens: _StateTokens, depth: int) -> tuple[str, ValueType]:
    if not tokens.took("["):
        return ANY, ValueType()
    key = tokens.take()
    if not tokens.took(","):
        raise ValueError("is a map with one type: it has two, of its keys and its values")
    if key not in (ANY, *KEYS):
        raise ValueError(f"has keys of type {key!r}, which are {', '.join(KEYS)}")
    found = _value(tokens, depth + 1)
    tokens.close("map")
    return key, found


def _fields(tokens: _StateTokens, depth: int) -> tuple[tuple[str, ValueType], ...]:
    fields: dict[str, ValueType] = {}
    if not tokens.took("["):
        raise ValueError("has a struct without fields: write struct[name: str, count: int]")
    while True:
        name = tokens.take()
        if not name.isidentifier() or not tokens.took(":"):
            raise ValueError("has a struct with a field without a name: write struct[name: str]")
        if name in fields:
            raise ValueError(f"has a struct with two fields of the name {name!r}")
        fields[name] = _value(tokens, depth + 1)
        if not tokens.took(","):
            break
    tokens.close("struct")
    return tuple(fields.items())


def is_state_name(text: str) -> bool:
    """Whether a function can have a state of this name as an attribute."""
    fits = text.isidentifier() and text.isascii() and not keyword.iskeyword(text)
    return fits and not text.startswith("_") and len(text) <= NAME_CHARACTERS_MAX
