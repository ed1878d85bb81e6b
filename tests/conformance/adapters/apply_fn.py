"""Cases about applying a task's function, alone or to whole batches, and about its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onyx.flow.apply import apply_function, resolve_params
from onyx.model.job import CatalogEntry


def _raises(message: str) -> Callable[..., Any]:
    def fn(*_: Any) -> Any:
        raise ValueError(message)

    return fn


def _raise_if_odd(segment: dict[str, Any]) -> dict[str, Any]:
    if segment["n"] % 2:
        raise ValueError("odd")
    return segment


FUNCTIONS: dict[tuple[str, bool], Callable[..., Any]] = {
    ("returns []", False): lambda segment: [],
    ("returns a set", False): lambda segment: {("a", 1)},
    ("odd n -> []", True): lambda batch: [[] if s["n"] % 2 else s for s in batch],
    ("raises", True): _raises("all"),
    ("raises", False): _raises("all"),
    ("raises if n is odd", False): _raise_if_odd,
    ("returns nil", False): lambda segment: None,
    ("adds p", True): lambda p, batch: [{**s, "p": p} for s in batch],
    ("adds p", False): lambda p, segment: {**segment, "p": p},
}


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    got: Any
    if case.get("op") == "resolve-params":
        got = resolve_params(case["peer_fn_params"], _entry(case["task_map"]))
        expected = case["expected_params"]
    else:
        fn = FUNCTIONS.get((case["function"], case["batch_fn"]))
        if fn is None:
            return f"the adapter does not know the function {case['function']!r}"
        got = _leaves_per_segment(fn, case)
        expected = case["expected"].get("leaves_per_segment")
        if "threw" in case["expected"]:
            thrown = [each for leaves in got for each in leaves if "exception" in each]
            return None if thrown else f"expected a failure, got {got}"
    return None if got == expected else f"expected {expected}, got {got}"


def _entry(task_map: dict[str, Any]) -> CatalogEntry:
    own = {key: value for key, value in task_map.items() if not key.startswith("onyx/")}
    params = tuple(task_map.get("onyx/params", ()))
    return CatalogEntry(task_map["onyx/name"], "function", 1, params=params, options=own)


def _leaves_per_segment(fn: Callable[..., Any], case: dict[str, Any]) -> list[list[Any]]:
    batch = case["batch"]
    leaves = apply_function(fn, case["params"], batch, case["batch_fn"])
    parents = range(len(leaves)) if leaves.parents is None else leaves.parents.tolist()
    result: list[list[Any]] = [[] for _ in batch]
    for parent, segment in zip(parents, leaves.segments, strict=True):
        result[parent].append(segment)
    for parent, error in leaves.failures:
        result[parent].append({"exception": str(error), "segment": batch[parent]})
    return result
