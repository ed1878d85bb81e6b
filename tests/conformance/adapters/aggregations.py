"""Cases about aggregations: the state after each segment, and of two states merged.

What is logged for a segment is our own affair, so the updates of the cases are not compared. An
exact ratio is a float here, and a set of segments a list.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.manifests import function
from tests.conformance.values import same, value

from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.table import built_in


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    if case["op"] == "super-aggregation":
        return _merge(case)
    window = case["window"]
    name = window["window/aggregation"]
    parts = name if isinstance(name, list) else [name, ""]
    short = function(parts[0])
    aggregation = built_in(short, parts[1], window.get("window/init"), "case")
    state = aggregation.init()
    wrong = _compare(short, aggregation.view(state), case["init"])
    for each in case["states"]:
        extracted = aggregation.extract([value(each["segment"])])[0]
        state = aggregation.apply(state, aggregation.create(state, extracted))
        wrong = wrong or _compare(short, aggregation.view(state), each["state"])
    return wrong


def _merge(case: dict[str, Any]) -> str | None:
    name = case["aggregation"]
    aggregation: Aggregation = built_in(name, "key", None, "case")
    one, other = (aggregation.from_view(value(case[key])) for key in ("state_1", "state_2"))
    return _compare(name, aggregation.view(aggregation.merge(one, other)), case["expected"])


def _compare(name: str, got: Any, expected: Any) -> str | None:
    wanted = value(expected)
    if same(got, wanted, unordered=name == "collect-by-key"):
        return None
    return f"{name}: expected {wanted!r}, got {got!r}"
