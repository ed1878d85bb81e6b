"""The leaves of a batch: what a function returned, flattened, with columns that say of what.

Only the usual answers (all dicts, dicts and Nones, lists) are worth a fast path. An object per
result, as in the original, was rejected: it costs four times the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import itemgetter
from types import GeneratorType, NoneType
from typing import Any

import numpy as np

from onyx.errors import UserFunctionError
from onyx.flow.batch import Indices, Segment

LEAVES_MAX = 1_000_000
"""Most segments that a generator may make of one: an endless one would take all memory."""

Failure = tuple[int, Exception]
"""Index of the segment in the batch, and what the function raised for it."""


@dataclass(slots=True)
class Leaves:
    """What a function made of a batch, flattened, in order."""

    segments: list[Segment]
    parents: Indices | None = None
    """For each leaf the index of its parent in the batch, never falling; None: leaf i is of
    parent i, for every i."""
    child_index: Indices | None = None
    """For each leaf its index among the leaves of its parent; None: 0 for all."""
    failures: list[Failure] = field(default_factory=list)
    """Segments for which the function raised, in order; they have no leaves."""

    def __len__(self) -> int:
        return len(self.segments)


@dataclass(slots=True)
class Outcome:
    """Results by kind, as the function was called: dicts, and what stood between them."""

    dicts: list[Segment]
    odd: list[Any]
    """Results that are no dicts, None where the function raised."""
    gaps: list[int]
    """How many dicts came before each odd one; so its index is that plus its place in `odd`."""
    failures: list[Failure]


_NONE, _EMPTY = {NoneType}, {NoneType, list, tuple}


def flatten(outcome: Outcome) -> Leaves:
    """The leaves of one result a segment; results that are no segments become failures."""
    odd = outcome.odd
    if not odd:
        return Leaves(outcome.dicts)
    indices = np.array(outcome.gaps, dtype=np.intp) + np.arange(len(odd))
    counts = np.ones(len(outcome.dicts) + len(odd), dtype=np.intp)
    kinds = set(map(type, odd))
    if kinds == _NONE or (kinds <= _EMPTY and not any(odd)):
        counts[indices] = 0
        return Leaves(outcome.dicts, np.flatnonzero(counts), None, outcome.failures)
    lists, failures = _as_lists(odd, indices)
    counts[indices] = list(map(len, lists))
    parents = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    child_index = np.arange(len(parents)) - firsts[parents]
    failures = sorted(outcome.failures + failures, key=itemgetter(0))
    return Leaves(_merge(outcome, lists), parents, child_index, failures)


def _merge(outcome: Outcome, lists: list[Sequence[Segment]]) -> list[Segment]:
    """The dicts with the leaves of the odd results in their places."""
    if not outcome.dicts:
        return list(chain.from_iterable(lists))
    segments: list[Segment] = []
    taken = 0
    for gap, leaves in zip(outcome.gaps, lists, strict=True):
        segments += outcome.dicts[taken:gap]
        segments += leaves
        taken = gap
    return segments + outcome.dicts[taken:]


def _as_lists(odd: list[Any], indices: Indices) -> tuple[list[Sequence[Segment]], list[Failure]]:
    if set(map(type, odd)) == {list} and set(map(type, chain.from_iterable(odd))) == {dict}:
        return odd, []
    lists: list[Sequence[Segment]] = []
    failures: list[Failure] = []
    for index, result in zip(indices.tolist(), odd, strict=True):
        try:
            lists.append(_as_list(result))
        except Exception as error:
            failures.append((index, error))
            lists.append(())
    return lists, failures


def _as_list(result: Any) -> Sequence[Segment]:
    if isinstance(result, dict):
        return (result,)
    if result is None:
        return ()
    if isinstance(result, GeneratorType):
        result = list(islice(result, LEAVES_MAX + 1))
        if len(result) > LEAVES_MAX:
            raise UserFunctionError(
                f"the function's generator made more than {LEAVES_MAX:,} segments of one: "
                f"is it endless? Make fewer, or read them by an input plugin"
            )
    if isinstance(result, list | tuple):
        for each in result:
            if not isinstance(each, dict):
                raise UserFunctionError(
                    f"the function returned a {type(result).__name__} that holds "
                    f"{describe_type(each)}: every segment must be a dict"
                )
        return result
    raise UserFunctionError(
        f"the function returned {describe_type(result)}: it must return a dict (one segment), "
        f"None or [] (none), or a list of dicts (several)"
    )


def describe_type(value: Any) -> str:
    """The type only: what is in a segment has no place in a log."""
    kind = type(value)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
