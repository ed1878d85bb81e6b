"""Amounts with a unit as numbers: milliseconds, or elements."""

from __future__ import annotations

from onyx.errors import UserError

MILLISECONDS = {
    "millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000,
}  # fmt: skip
Amount = tuple[int, str]


def standard_unit(unit: str) -> str:
    """`milliseconds` for a unit of time, `elements` for elements.

    Raises:
        UserError: there is no such unit.
    """
    singular = unit.removesuffix("s")
    if singular in MILLISECONDS:
        return "milliseconds"
    if singular == "element":
        return "elements"
    known = ", ".join(f"{each}s" for each in (*MILLISECONDS, "element"))
    raise UserError(f"{unit!r} is not a unit; use {known}")


def standard(amount: Amount) -> int:
    """An amount in its standard unit: `(5, "minutes")` is 300000."""
    value, unit = amount
    standard_unit(unit)
    return value * MILLISECONDS.get(unit.removesuffix("s"), 1)


def is_time(amount: Amount) -> bool:
    """Whether the amount is of time, not of elements."""
    return standard_unit(amount[1]) == "milliseconds"
