"""Functions are looked up and their arity is checked before a job runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from onyx.cli.functions import wrong_functions
from onyx.model.parsing.job import parse_mapping

SOURCE = """
def one(segment): ...
def two(a, segment): ...
def with_default(segment, more=None): ...
def anything(*args): ...
def none(): ...
def predicate(event, old, new, all_new): ...
def over(event, old, new, all_new, limit): ...
def columns(event, batch): ...
def fired(event, window, trigger, state_event, state): ...
def hooks(): return {"before_batch": lambda event, lifecycle: None}
def wrong_hooks(): return {"before_batch": lambda event: None}
def raises(): raise KeyError("x")
def totals():
    return {"init": lambda window: 0, "create_state_update": lambda w, s, x: 1,
            "apply_state_update": lambda w, s, u: s}
def wrong_totals():
    return {"init": lambda: 0, "create_state_update": lambda w, s, x: 1,
            "apply_state_update": lambda w, s, u: s}
"""


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    made = ModuleType("arities")
    exec(compile(SOURCE, "arities.py", "exec"), vars(made))
    sys.modules["arities"] = made
    yield
    del sys.modules["arities"]


def problems(work: dict[str, Any] | None = None, **spec: Any) -> list[str]:
    """Of a job with one task, to which keys are added."""
    task = {"name": "work", "type": "function", "fn": "arities:one"} | (work or {})
    mapping = {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "j"},
        "spec": {
            "workflow": [["read", "work"], ["work", "write"]],
            "catalog": [
                {"name": "read", "type": "input", "plugin": "sequence"},
                task,
                {"name": "write", "type": "output", "plugin": "blackhole"},
            ],
            "guarantee": "exactly-once",
            **spec,
        },
    }
    job = parse_mapping(mapping)
    return [str(each) for each in wrong_functions(job, ["arities"], {}, lambda path: False)]


def window(aggregation: str, **trigger: Any) -> dict[str, Any]:
    windows = [{"id": "w", "task": "work", "type": "global", "aggregation": aggregation}]
    fires = {
        "windowId": "w",
        "type": "segment",
        "refinement": "accumulating",
        "threshold": "1 element",
    } | trigger
    return {"windows": windows, "triggers": [fires]}


def condition(predicate: Any, **more: Any) -> dict[str, Any]:
    each = {"from": "work", "to": ["write"], "predicate": predicate} | more
    return {"flowConditions": [each]}


@pytest.mark.parametrize(
    ("work", "spec"),
    [
        ({}, {}),
        ({"fn": "arities:two", "params": ["a"], "options": {"a": 1}}, {}),
        ({"fn": "arities:with_default"}, {}),
        ({"fn": "arities:anything", "batchFn": True}, {}),
        ({}, condition("arities:predicate")),
        ({}, condition(["arities:over", "n"], options={"n": 1})),
        ({}, condition(["or", "arities:predicate", [">", "n", 1]])),
        ({}, condition("arities:columns", batchFormat="arrow")),
        ({}, {"lifecycles": [{"task": "all", "calls": "arities:hooks"}]}),
        ({}, window("arities:totals", emit="arities:fired")),
    ],
)
def test_functions_that_can_be_called_are_right(work: Any, spec: Any) -> None:
    assert problems(work, **spec) == []


@pytest.mark.parametrize(
    ("work", "spec", "problem"),
    [
        (
            {"fn": "arities:two"},
            {},
            "spec.catalog[1].fn: arities:two is called as fn(segment), but",
        ),
        ({"fn": "arities:none"}, {}, "too many positional arguments (arities.py, line 6)"),
        ({"fn": "arities:one", "params": ["a"], "options": {"a": 1}}, {}, "as fn(a, segment)"),
        ({"fn": "arities:two", "batchFn": True}, {}, "is called as fn(segments), but"),
        ({"fn": "arities:missing"}, {}, "spec.catalog[1].fn: arities:missing"),
        ({}, condition("arities:one"), "as fn(event, old, new, all_new), but"),
        ({}, condition(["arities:predicate", "n"], options={"n": 1}), "predicate[0]"),
        ({}, condition(["not", "arities:one"]), "predicate[1]: arities:one is called"),
        ({}, condition("arities:one", batchFormat="arrow"), "as fn(event, record_batch), but"),
        (
            {},
            {"lifecycles": [{"task": "all", "calls": "arities:wrong_hooks"}]},
            "before_batch of arities:wrong_hooks is called as fn(event, lifecycle), but",
        ),
        (
            {},
            {"lifecycles": [{"task": "all", "calls": "arities:raises"}]},
            "calls: arities:raises raised KeyError: 'x'",
        ),
        (
            {},
            {"lifecycles": [{"task": "all", "calls": "arities:one"}]},
            "calls: arities:one is called without arguments, but",
        ),
        ({}, window("arities:wrong_totals", emit="arities:fired"), "init of arities:wrong_totals"),
        ({}, window("arities:totals", emit="arities:one"), "spec.triggers[0].emit: arities:one"),
        ({}, window("arities:totals", sync="arities:none"), "spec.triggers[0].sync: arities:none"),
    ],
)
def test_functions_that_cannot_be_called_are_named(work: Any, spec: Any, problem: str) -> None:
    (found,) = problems(work, **spec)
    assert problem in found
