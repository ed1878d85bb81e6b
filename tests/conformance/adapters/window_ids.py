"""Cases about numbers of extents: which a place is in, and the bounds of each."""

from __future__ import annotations

from typing import Any

from onyx.windows.assigning.assigner import Tiling


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    tiling = Tiling(case["min_value"], case["range"], case["slide"])
    if case["op"] == "bounds":
        got: list[Any] = list(tiling.bounds(case["window_id"]))
        members = [
            place
            for place in case.get("expected_values", ())
            if case["window_id"] not in tiling.numbers(place)
        ]
        if members:
            return f"{members} are not in extent {case['window_id']}"
    else:
        got = list(tiling.numbers(case["value"]))
        bounds = [list(tiling.bounds(number)) for number in got]
        if bounds != case.get("expected_bounds", bounds):
            return f"expected bounds {case['expected_bounds']}, got {bounds}"
    return None if got == case["expected"] else f"expected {case['expected']}, got {got}"
