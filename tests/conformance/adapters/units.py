"""Cases about units of windows and triggers."""

from __future__ import annotations

from typing import Any

from onyx.errors import UserError
from onyx.windows.assigning.coordinates import Coordinates
from onyx.windows.units import is_time, standard, standard_unit


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    try:
        got = _answer(case)
    except UserError as error:
        return None if "expected_error" in case else f"an error: {error}"
    if "expected_error" in case:
        return f"expected an error, got {got!r}"
    return None if got == case["expected"] else f"expected {case['expected']!r}, got {got!r}"


def _answer(case: dict[str, Any]) -> Any:
    unit = case["unit"]
    match case["op"]:
        case "standard-units-for":
            return standard_unit(unit)
        case "to-standard-units":
            return standard((case["value"], unit))
        case "coerce-key":
            coordinates = Coordinates("window w of task task", "at", is_time((1, unit)))
            return coordinates.number(case["value"])
    raise KeyError(case["op"])
