"""Cases about windows and triggers of 0.9: what is called after each segment, and at the end.

Where 0.9 leaves nil as the state of a discarded extent, from which the next segment begins with the
first state, we have the first state itself, as its guide says.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from tests.conformance.manifests import function
from tests.conformance.values import same, value
from tests.conformance.windowing import (
    Call,
    calls,
    differences,
    expected_calls,
    groups_of,
    is_unordered,
    window_of,
    windows_of,
)

from onyx.keystate.extents import Extent
from onyx.windows.aggregations.table import built_in


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    windows, entry = windows_of(case, assigned=False)
    got: list[Call] = []
    for index, segment in enumerate(map(value, case["segments"])):
        added = windows.add([segment], groups_of(entry, [segment]), 0)
        got += calls(index, added.firings)
    final = {each["window/id"]: windows.query(each["window/id"]) for each in case["windows"]}
    done = calls(None, [*chain.from_iterable(windows.complete(range(4), 0))])
    wanted, unordered = case["expected"], is_unordered(case)
    first = _first_state(case)
    return (
        differences(got, _filled(wanted["trigger-calls"], first), unordered)
        or _final(case, final, first)
        or differences(done, _filled(wanted["job-completed-trigger-calls"], first), unordered)
    )


def _first_state(case: dict[str, Any]) -> Any:
    window = case["windows"][0]
    name = window["window/aggregation"]
    parts = name if isinstance(name, list) else [name, ""]
    made = built_in(function(parts[0]), parts[1], window.get("window/init"), "case")
    return made.view(made.init())


def _filled(listed: list[dict[str, Any]], first: Any) -> list[Call]:
    wanted = expected_calls(listed, "after-segment")
    return [each._replace(state=first) if each.state is None else each for each in wanted]


def _final(case: dict[str, Any], final: dict[str, list[Extent]], first: Any) -> str | None:
    """States by window, and then by extent, or by group and extent."""
    grouped = "onyx/group-by-key" in case["task_map"]
    for name, held in case["expected"]["final-state"].items():
        window = next(each for each in case["windows"] if each["window/id"] == name)
        wanted = value(held)
        by_extent = (
            [each for one in wanted.values() for each in one.items()]
            if grouped
            else list(wanted.items())
        )
        states = [first if state is None else state for _, state in by_extent]
        got = [each.state for each in final[name]]
        unordered = is_unordered(case)
        if len(got) != len(states) or not all(
            any(same(each, other, unordered) for other in got) for each in states
        ):
            return f"final states of {window_of(window, 't').type}: wanted {states}, got {got}"
    return None
