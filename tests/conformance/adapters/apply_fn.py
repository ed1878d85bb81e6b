"""Cases about applying a task's function, alone or to whole batches, and about its parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.conformance.words import Unknown, function

from onyx.flow.leaves import apply_function, resolve_params
from onyx.model.job import CatalogEntry


def described(words: str, batch_fn: bool) -> Callable[..., Any]:
    """The function that a case describes in words, of a segment or of a whole batch.

    Words about the batch itself (too few results, no list) come before those about its segments.
    """
    if not batch_fn:
        return function(words)
    for pattern, change in _WHOLE_BATCH:
        if re.search(pattern, words):
            return lambda *arguments: change(arguments[-1])
    one = function(words)
    return lambda *arguments: [one(*arguments[:-1], segment) for segment in arguments[-1]]


_WHOLE_BATCH: tuple[tuple[str, Callable[[list[Any]], Any]], ...] = (
    (r"\b(?:fewer|less|too few|one short|drops the (?:last|first))\b", lambda batch: batch[1:]),
    (r"\b(?:more|too many|extra)\b", lambda batch: [*batch, *batch]),
    (r"\b(?:no list|not a (?:list|seq\w*)|a single (?:segment|map))\b", lambda batch: batch[0]),
)


def check(case: dict[str, Any], document: dict[str, Any]) -> str | None:
    got: Any
    if case.get("op") == "resolve-params":
        got = resolve_params(case["peer_fn_params"], _entry(case["task_map"]))
        expected = case["expected_params"]
    else:
        try:
            fn = described(case["function"], case["batch_fn"])
        except Unknown as error:
            return f"the adapter does not understand {case['function']!r}: {error}"
        got = _leaves_per_segment(fn, case)
        expected = case["expected"].get("leaves_per_segment")
        if "threw" in case["expected"]:
            thrown = [each for leaves in got for each in leaves if "exception" in each]
            return None if thrown else f"expected a failure, got {got}"
    if expected == got or _without_messages(expected) == _without_messages(got):
        return None
    return f"expected {expected}, got {got}"


def _without_messages(value: Any) -> Any:
    """What an exception says is the function's own affair, and the words do not tell it."""
    if isinstance(value, dict):
        return {k: "..." if k == "exception" else _without_messages(v) for k, v in value.items()}
    return [_without_messages(each) for each in value] if isinstance(value, list) else value


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
