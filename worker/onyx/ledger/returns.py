"""What functions give back by `ack_return`, put together for each tree.

A value travels as a part: what it is so far, or why it cannot be. Parts of a tree are put together
by whoever sends acks, by its acker, and over the trees of a request by the input, in any order. So
an aggregator has to be associative; `last` is the last one that has arrived. A part says how it is
put together, so nobody on the way has to know the job.

An aggregator of the user's gets all values at the end, in one list: it would hold up other trees if
the acker called it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

TREE_BYTES_MAX = 1_048_576
"""What one tree may give back, encoded, about; and what one request may."""
OUTCOMES, RETRIED = "\0outcomes", "\0retried"
"""Keys, and aggregators, of what the engine itself says of a tree (`outcomes`)."""
FAILURES_SHOWN_MAX = 100
"""Segments that are named one by one."""


class ReturnPart(NamedTuple):
    """A value of one key so far."""

    aggregator: str
    value: Any
    size_bytes: int
    error: str = ""
    """Why there is no value."""


Parts = dict[str, ReturnPart]
"""What a tree gives back, by key."""
Trees = dict[int, Parts]
"""What trees give back, by root."""


def part_of(aggregator: str, value: Any, size_bytes: int) -> ReturnPart:
    """A value as it was given."""
    if aggregator == "count":
        return ReturnPart(aggregator, 1, 1)
    return ReturnPart(aggregator, [value] if collects(aggregator) else value, size_bytes)


def no_value(error: str) -> ReturnPart:
    """In place of a value that there is not."""
    return ReturnPart("last", None, 1, error)


def without_values(parts: Mapping[str, ReturnPart], error: str) -> Parts:
    """Parts whose values are gone, with the reason; what the engine says of the tree stays."""
    of_engine = (OUTCOMES, RETRIED)
    return {key: part if key in of_engine else no_value(error) for key, part in parts.items()}


def collects(aggregator: str) -> bool:
    """Whether values are kept in a list: for `collect`, and for a function of the user's."""
    return aggregator == "collect" or ":" in aggregator


def add_tree(trees: Trees, root: int, parts: Mapping[str, ReturnPart]) -> None:
    """Add parts of a tree to what is known of it."""
    put_together(trees.setdefault(root, {}), parts.items())


def put_together(into: Parts, parts: Iterable[tuple[str, ReturnPart]]) -> None:
    """Add parts to others of the same tree, or of the same request."""
    for key, part in parts:
        before = into.get(key)
        into[key] = part if before is None else _together(key, before, part)


def _together(key: str, one: ReturnPart, other: ReturnPart) -> ReturnPart:
    if one.error or other.error:
        return one if one.error else other
    aggregator, both_bytes = one.aggregator, one.size_bytes + other.size_bytes
    size_bytes = both_bytes if collects(aggregator) else max(one.size_bytes, other.size_bytes)
    if size_bytes > TREE_BYTES_MAX:
        return ReturnPart(
            aggregator, None, 0, f"more than {TREE_BYTES_MAX:,} bytes were given back"
        )
    combine = _COMBINE["collect" if collects(aggregator) else aggregator]
    try:
        return ReturnPart(aggregator, combine(one.value, other.value), size_bytes)
    except Exception as error:
        why = f"{aggregator} of {key} failed: {type(error).__name__}: {error}"
        return ReturnPart(aggregator, None, 0, why)


def _added(one: Any, other: Any) -> Any:
    return one + other


def _last(one: Any, other: Any) -> Any:
    return other


def _outcomes(one: list[Any], other: list[Any]) -> list[Any]:
    """Counts, the first error, and the first failures (`outcomes.Outcomes`)."""
    *counts, error, failures = one
    *other_counts, other_error, other_failures = other
    added = [mine + its for mine, its in zip(counts, other_counts, strict=True)]
    return [*added, error or other_error, [*failures, *other_failures][:FAILURES_SHOWN_MAX]]


_COMBINE: Mapping[str, Callable[[Any, Any], Any]] = {
    "collect": _added,
    "count": _added,
    "last": _last,
    "max": max,
    "min": min,
    "sum": _added,
    OUTCOMES: _outcomes,
    RETRIED: _last,
}
