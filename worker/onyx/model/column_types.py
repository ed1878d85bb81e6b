"""Names of the types of columns, as a schema in a manifest gives them.

    int64    decimal(10, 2)    list<string>    struct<lat: float64, lon: float64>

Parsed here, because a manifest is checked where no Arrow library is; `flow/columns/schemas` makes
Arrow types of them. The names are Arrow's own where it has short ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

SIMPLE = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float32", "float64", "string", "binary", "date", "time", "timestamp", "duration",
)  # fmt: skip
COLUMNS_MAX = 256
DEPTH_MAX = 16
CHARACTERS_MAX = 1_024
PRECISION_MAX = 38
"""Digits of a decimal."""

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d+|[<>(),:])")


class ColumnType(msgspec.Struct, frozen=True):
    """A type: its name, and what it is made of."""

    name: str
    """One of `SIMPLE`, `decimal`, `list` or `struct`."""
    numbers: tuple[int, ...] = ()
    """Precision and scale of a decimal."""
    fields: tuple[tuple[str, ColumnType], ...] = ()
    """The fields of a struct; of a list its only item, without a name."""


def parse_type(text: str) -> ColumnType:
    """The type of this name.

    Raises:
        ValueError: there is none; the message says what is wrong.
    """
    if len(text) > CHARACTERS_MAX:
        raise ValueError(f"has {len(text)} characters, more than {CHARACTERS_MAX}")
    tokens = _ColumnTokens(text)
    found = _type(tokens, 0)
    if tokens.current:
        raise ValueError(f"goes on with {tokens.current!r} behind the type")
    return found


class _ColumnTokens:
    def __init__(self, text: str) -> None:
        self._rest = self._split(text)
        self.current = next(self._rest, "")

    def _split(self, text: str) -> Iterator[str]:
        position = 0
        while position < len(text.rstrip()):
            found = _TOKEN.match(text, position)
            if found is None:
                raise ValueError(f"has {text[position:].strip()[:1]!r}, which no type has")
            yield found.group(1)
            position = found.end()

    def take(self, expected: str = "") -> str:
        token = self.current
        if expected and token != expected:
            raise ValueError(f"has {token or 'nothing'!r} where {expected!r} must be")
        self.current = next(self._rest, "")
        return token


def _type(tokens: _ColumnTokens, depth: int) -> ColumnType:
    if depth > DEPTH_MAX:
        raise ValueError(f"is nested deeper than {DEPTH_MAX}")
    name = tokens.take()
    if name in SIMPLE:
        return ColumnType(name)
    if name == "decimal":
        return _decimal(tokens)
    if name == "list":
        tokens.take("<")
        item = _type(tokens, depth + 1)
        tokens.take(">")
        return ColumnType("list", fields=(("", item),))
    if name == "struct":
        return _struct(tokens, depth)
    raise ValueError(
        f"is no type: {name or 'nothing'!r} is not {', '.join(SIMPLE)}, decimal(10, 2)"
        ", list<...> or struct<name: ...>"
    )


def _decimal(tokens: _ColumnTokens) -> ColumnType:
    tokens.take("(")
    precision = tokens.take()
    tokens.take(",")
    scale = tokens.take()
    tokens.take(")")
    if not (precision.isdigit() and scale.isdigit()):
        raise ValueError("is a decimal without two numbers, as in decimal(10, 2)")
    if not 1 <= int(precision) <= PRECISION_MAX or int(scale) > int(precision):
        raise ValueError(
            f"is a decimal of {precision} digits with {scale} behind the point; at "
            f"most {PRECISION_MAX} digits can be"
        )
    return ColumnType("decimal", (int(precision), int(scale)))


def _struct(tokens: _ColumnTokens, depth: int) -> ColumnType:
    tokens.take("<")
    fields: dict[str, ColumnType] = {}
    while True:
        name = tokens.take()
        if not name.isidentifier() or name in fields:
            raise ValueError(f"is a struct with {name or 'nothing'!r} where a new name must be")
        tokens.take(":")
        fields[name] = _type(tokens, depth + 1)
        if tokens.current != ",":
            break
        tokens.take()
    tokens.take(">")
    return ColumnType("struct", fields=tuple(fields.items()))
