"""Apply a task's function to a batch.

A function returns a dict (one segment), None or an empty list (the segment ends here), or a list,
tuple or generator of dicts. What it raises does not lose the other segments of the batch, and no
segment is given to it twice: the loop goes on behind the one that failed. Results that are dicts
need nothing more; the others are put in their places afterwards, for the whole batch at once.

An object per result, as in the original's leaves, was rejected: it costs four times the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from types import GeneratorType, NoneType
from typing import Any

import numpy as np

from onyx.errors import UserError, UserFunctionError
from onyx.flow.batch import Indices, Segment
from onyx.model.job import CatalogEntry

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


def apply_function(
    fn: Callable[..., Any],
    params: Sequence[Any],
    segments: list[Segment],
    batch_fn: bool = False,
) -> Leaves:
    """The leaves of a batch.

    Args:
        fn: called as `fn(*params, segment)`; with `batch_fn` once, as `fn(*params, segments)`, and
            then it returns one result a segment.
        params: leading arguments (`resolve_params`).

    What the function raises, and results that are no segments (UserFunctionError), are in
    `failures`; when a batch function fails, each of its segments has failed.
    """
    call = partial(fn, *params) if params else fn
    if batch_fn:
        return _apply_batch(call, segments)
    return _flatten(_call_each(call, segments))


def resolve_params(peer_fn_params: Mapping[str, Sequence[Any]], entry: CatalogEntry) -> list[Any]:
    """Leading arguments of the task's function: those that the peer's settings give for the task,
    then the values in `options` of the keys in `params`.

    Raises:
        UserError: a key of `params` is not in `options`.
    """
    missing = [key for key in entry.params if key not in entry.options]
    if missing:
        raise UserError(
            f"task {entry.name!r}: params names {missing[0]!r}, which its options do not have: "
            f"add it under options, or remove it from params"
        )
    return [*peer_fn_params.get(entry.name, ()), *(entry.options[key] for key in entry.params)]


@dataclass(slots=True)
class _Outcome:
    """Results sorted by kind while the function is called: dicts, and what stood between them."""

    dicts: list[Segment]
    odd: list[Any]
    """Results that are no dicts, None where the function raised."""
    gaps: list[int]
    """How many dicts came before each odd one; so its index is that plus its place in `odd`."""
    failures: list[Failure]


def _call_each(call: Callable[[Any], Any], arguments: Sequence[Any]) -> _Outcome:
    outcome = _Outcome([], [], [], [])
    dicts, odd, gaps = outcome.dicts, outcome.odd, outcome.gaps
    append = dicts.append
    remaining = iter(arguments)
    while True:
        try:
            for argument in remaining:
                result = call(argument)
                if type(result) is dict:
                    append(result)
                else:
                    odd.append(result)
                    gaps.append(len(dicts))
            return outcome
        except Exception as error:
            outcome.failures.append((len(dicts) + len(odd), error))
            odd.append(None)
            gaps.append(len(dicts))


def _apply_batch(call: Callable[[list[Segment]], Any], segments: list[Segment]) -> Leaves:
    try:
        results = call(list(segments))
        if not isinstance(results, list | tuple) or len(results) != len(segments):
            raise UserFunctionError(_wrong_batch(results, len(segments)))
    except Exception as error:
        nothing = np.empty(0, dtype=np.intp)
        return Leaves([], nothing, None, [(index, error) for index in range(len(segments))])
    return _flatten(_call_each(_identity, results))


def _identity(result: Any) -> Any:
    return result


def _wrong_batch(results: Any, expected: int) -> str:
    came = f"{len(results)} results" if isinstance(results, list | tuple) else _describe(results)
    return (
        f"the batch function returned {came} for {expected} segments: it must return a list with "
        f"one result a segment (a dict, None, or a list of dicts)"
    )


_NOTHING = {NoneType, list, tuple}


def _flatten(outcome: _Outcome) -> Leaves:
    odd = outcome.odd
    if not odd:
        return Leaves(outcome.dicts)
    indices = np.array(outcome.gaps, dtype=np.intp) + np.arange(len(odd))
    counts = np.ones(len(outcome.dicts) + len(odd), dtype=np.intp)
    if set(map(type, odd)) <= _NOTHING and not any(odd):
        counts[indices] = 0
        return Leaves(outcome.dicts, np.flatnonzero(counts), None, outcome.failures)
    lists, failures = _as_lists(odd, indices)
    counts[indices] = list(map(len, lists))
    parents = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    child_index = np.arange(len(parents)) - firsts[parents]
    failures = sorted(outcome.failures + failures, key=itemgetter(0))
    return Leaves(_merge(outcome, lists), parents, child_index, failures)


def _merge(outcome: _Outcome, lists: list[Sequence[Segment]]) -> list[Segment]:
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
                    f"{_describe(each)}: every segment must be a dict"
                )
        return result
    raise UserFunctionError(
        f"the function returned {_describe(result)}: it must return a dict (one segment), "
        f"None or [] (none), or a list of dicts (several)"
    )


def _describe(value: Any) -> str:
    """The type only: what is in a segment has no place in a log."""
    kind = type(value)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
