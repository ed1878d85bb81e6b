"""Amounts with a unit as numbers: milliseconds, or elements."""

from __future__ import annotations

from onyx.errors import UserError
from onyx.model.names import UNIT_MS

Amount = tuple[int, str]


def standard_unit(unit: str) -> str:
    """`milliseconds` for a unit of time, `elements` for elements.

    Raises:
        UserError: there is no such unit.
    """
    singular = unit.removesuffix("s")
    if singular in UNIT_MS:
        return "milliseconds"
    if singular == "element":
        return "elements"
    known = ", ".join(f"{each}s" for each in (*UNIT_MS, "element"))
    raise UserError(f"{unit!r} is not a unit; use {known}")


def standard(amount: Amount) -> int:
    """An amount in its standard unit: `(5, "minutes")` is 300000."""
    value, unit = amount
    standard_unit(unit)
    return value * UNIT_MS.get(unit.removesuffix("s"), 1)


def is_time(amount: Amount) -> bool:
    """Whether the amount is of time, not of elements."""
    return standard_unit(amount[1]) == "milliseconds"
