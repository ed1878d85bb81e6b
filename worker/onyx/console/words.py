"""Figures as a person reads them; pure. Filters of the templates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

SHORT_ID = 8
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_PREFIXES = ("", "k", "M", "G", "T")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def age(milliseconds: float) -> str:
    """A time that has passed, by its two largest units: `3 h 12 min`."""
    left = max(0, int(milliseconds // 1000))
    found: list[str] = []
    for size, unit in _UNITS:
        if left >= size or (unit == "s" and not found):
            found.append(f"{left // size} {unit}")
            left %= size
        elif found:
            break
    return " ".join(found[:2])


def took(seconds: float | None) -> str:
    """A time that something has taken: `12 ms`, `3.4 s`, `3 h 12 min`; empty: it is not known."""
    if seconds is None:
        return ""
    if seconds >= 600:
        return age(seconds * 1000)
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def count(number: float) -> str:
    """A number: whole ones with separators, others with one digit."""
    if isinstance(number, int) or number >= 100 or number == int(number):
        return f"{int(number):,}"
    return f"{number:,.1f}"


def rate(per_second: float) -> str:
    """So many a second, in three digits or so: `12.4 k/s`."""
    number = per_second
    for prefix in _PREFIXES:
        if number < 999.5 or prefix == _PREFIXES[-1]:
            digits = 0 if number >= 99.95 or number == int(number) else 1
            return f"{number:,.{digits}f} {prefix}/s"
        number /= 1000
    raise AssertionError("the last prefix ends it")


def size(number: float) -> str:
    """A number of bytes."""
    left = float(number)
    for unit in _BYTES:
        if left < 1000 or unit == _BYTES[-1]:
            return f"{left:,.0f} {unit}" if unit == "B" or left >= 99.5 else f"{left:.1f} {unit}"
        left /= 1024
    raise AssertionError("the last unit ends it")


def instant(wall_ms: int) -> str:
    """A moment in milliseconds since 1970, to the second."""
    if not 0 < wall_ms < 253_402_300_800_000:
        return "unknown"
    return datetime.fromtimestamp(wall_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso(wall_ms: int) -> str:
    """A moment for programs."""
    return instant(wall_ms).replace(" ", "T") + "Z" if wall_ms > 0 else ""


def short(text: str, characters: int = SHORT_ID) -> str:
    """The beginning of an id."""
    return text if len(text) <= characters + 1 else f"{text[:characters]}…"


def some(number: int, what: str, many: str = "") -> str:
    """A number of things: `1 peer`, `3 peers`."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names in a row, the first of them."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


class Pagination(msgspec.Struct, frozen=True):
    """A long list in pieces: which one is shown of how many."""

    number: int
    last: int
    first_row: int
    rows: int

    @classmethod
    def of(cls, rows: int, number: int, size: int) -> Pagination:
        """The page with a number; the nearest one that there is."""
        last = max(1, -(-rows // size))
        number = min(max(1, number), last)
        return cls(number, last, (number - 1) * size, rows)
