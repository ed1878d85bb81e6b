"""Every type that the value of a segment may have, with values at its edges, and the page that says
what becomes of each where it passes: `docs/reference/types.md`.

A place is a column of a table there. Its test measures what becomes of each type, and compares
that with the column; with `ONYX_TESTS_RENEW=1` it writes the column instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from onyx.errors import OnyxError

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "types.md"
RENEW = "ONYX_TESTS_RENEW"
_TABLE = re.compile(r"^\| type \|.*\n(\|.*\n)+", re.MULTILINE)
"""A table of the page, whose first column has the types."""
_NAN, _INFINITY = float("nan"), float("inf")
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
_SUMMER = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
"""An hour before the clocks of Berlin go back."""
_LONG, _SHORT = timedelta(days=106_751_991), timedelta(microseconds=1)


class Kind(msgspec.Struct, frozen=True):
    """A type, and values of it."""

    type: pa.DataType
    values: Sequence[Any]
    null: bool = True
    """Whether there is a row without a value, too: the last one."""

    @property
    def name(self) -> str:
        return str(self.type)

    def column(self) -> pa.Array:
        """The values, and none."""
        return pa.array([*self.values, *([None] * self.null)], self.type)

    def alone(self) -> dict[str, Kind]:
        """Each value in a column of its own, by what the page calls it."""
        found = {_shown(value): Kind(self.type, [value], null=False) for value in self.values}
        return found | {"null": Kind(self.type, [])} if self.null else found


def _shown(value: Any) -> str:
    names = {"nan": "NaN", "inf": "infinity", "-inf": "infinity"}
    return names.get(repr(value), f"`{value if type(value) is not str else repr(value)}`")


def _whole(bits: int, signed: bool) -> Kind:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return Kind(getattr(pa, f"{'' if signed else 'u'}int{bits}")(), [low, 5, high])


KINDS: Sequence[Kind] = (
    Kind(pa.null(), []),
    Kind(pa.bool_(), [True, False]),
    *(_whole(bits, signed) for signed in (True, False) for bits in (8, 16, 32, 64)),
    Kind(pa.float32(), [0.5, -1.5, -0.0, _NAN, _INFINITY]),
    Kind(pa.float64(), [0.1, -1.5, -0.0, _NAN, -_INFINITY]),
    Kind(pa.string(), ["", "a\0é\N{SNOWMAN}", "2026-10-25T00:30:00Z"]),
    Kind(pa.binary(), [b"", b"\xff\0"]),
    Kind(pa.date32(), [date.min, date(1582, 10, 10), date.max]),
    Kind(pa.time64("us"), [time.min, time.max]),
    Kind(pa.timestamp("us", "UTC"), [_FIRST, datetime(1883, 1, 1, tzinfo=UTC), _LAST]),
    Kind(pa.timestamp("us", "Europe/Berlin"), [_SUMMER, _SUMMER + timedelta(hours=1)]),
    Kind(pa.duration("us"), [_LONG, -_LONG, _SHORT, -_SHORT]),
    Kind(pa.decimal128(9, 2), [Decimal("-9999999.99")]),
    Kind(pa.decimal128(38, 10), [Decimal("9999999999999999999999999999.0000000001")]),
    Kind(pa.decimal256(38, 0), [Decimal(10**38 - 1)]),
    Kind(pa.decimal256(39, 0), [Decimal(10**39 - 1)]),
    Kind(pa.list_(pa.int64()), [[], [1, None]]),
    Kind(pa.list_(pa.null()), [[], [None]]),
    Kind(pa.list_(pa.uint64()), [[2**64 - 1]]),
    Kind(pa.list_(pa.duration("us")), [[_SHORT, None]]),
    Kind(pa.list_(pa.time64("us")), [[time.max]]),
    Kind(pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": None}]),
    Kind(pa.struct([("a", pa.null()), ("b", pa.uint8())]), [{"a": None, "b": 255}]),
    Kind(pa.struct([("a", pa.list_(pa.duration("us")))]), [{"a": [_SHORT]}]),
    Kind(pa.list_(pa.struct([("a", pa.time64("us"))])), [[{"a": time.min}, None]]),
)


def became(kind: Kind, passed: Callable[[], pa.Array]) -> str:
    """What becomes of a type, in words of the page.

    Args:
        passed: the column behind the place, in the types of segments.
    """
    try:
        column = passed()
    except OnyxError:
        return "refused"
    given = kind.column()
    if column.type != given.type:
        return f"becomes {column.type}"
    return "exact" if column.equals(given) or _alike(column, given) else "becomes other values"


def became_each(kind: Kind, passed: Callable[[Kind], pa.Array]) -> str:
    """What becomes of a type whose values are passed together, or one by one where some of them are
    refused or become others: then these are named.

    Args:
        passed: the column of a kind behind the place.
    """
    together = became(kind, partial(passed, kind))
    if together not in ("refused", "becomes other values"):
        return together
    alone = {name: became(each, partial(passed, each)) for name, each in kind.alone().items()}
    if alone.get("null") == "becomes null":  # of what has no type
        del alone["null"]
    values = [what for name, what in alone.items() if name != "null"]
    common = next((each for each in values if each not in ("refused", together)), None)
    if common is None:
        return together
    by_outcome: dict[str, list[str]] = {}
    for name, what in alone.items():
        if what != common:
            by_outcome.setdefault(what, []).append(name)
    others = [f"{', '.join(dict.fromkeys(names))} {what}" for what, names in by_outcome.items()]
    return "; ".join([common, *others])


def _alike(left: pa.Array, right: pa.Array) -> bool:
    """Whether they are equal with what is no number, which equals nothing."""
    return repr(left.to_pylist()) == repr(right.to_pylist())


def require_recorded(place: str, found: Mapping[str, str]) -> None:
    """That the column of a place says what was found, by the names of types."""
    page = PAGE.read_text()
    (table,) = (each for each in _TABLE.finditer(page) if place in _cells(each[0].splitlines()[0]))
    header, _, *rows = map(_cells, table[0].splitlines())
    at = header.index(place)
    if os.environ.get(RENEW):
        known = {row[0]: row for row in rows}
        rows = [known.get(f"`{kind.name}`", [f"`{kind.name}`"]) for kind in KINDS]
        for row, kind in zip(rows, KINDS, strict=True):
            row += [""] * (len(header) - len(row))
            row[at] = _cell(found[kind.name])
        lines = [header, ["---"] * len(header), *rows]
        text = "".join(f"| {' | '.join(row)} |\n" for row in lines)
        PAGE.write_text(page[: table.start()] + text + page[table.end() :])
        return
    recorded = {row[0].strip("`"): row[at] for row in rows}
    assert recorded == {name: _cell(what) for name, what in found.items()}


def _cell(what: str) -> str:
    return re.sub(r"becomes (?!other )([^;]*)", r"becomes `\1`", what)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]
