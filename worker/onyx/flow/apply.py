"""Apply a task's function to a batch.

A function returns a dict (one segment), None or an empty list (the segment ends here), or a list,
tuple or generator of dicts. What it raises does not lose the other segments of the batch, and no
segment is given to it twice: the loop goes on behind the one that failed. Whether all went well is
then decided once for the whole batch, by the set of types that came back; only the usual answers
(all dicts, dicts and Nones, lists) are worth a fast path.

An object per result, as in the original's leaves, was rejected: it costs four times the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
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
        results, failures = _call_batch(call, segments)
    else:
        results, failures = _call_each(call, segments)
    leaves = flatten(results)
    if failures:
        leaves.failures = sorted(failures + leaves.failures, key=lambda failure: failure[0])
    return leaves


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


def _call_each(
    call: Callable[[Segment], Any], segments: list[Segment]
) -> tuple[list[Any], list[Failure]]:
    results: list[Any] = []
    failures: list[Failure] = []
    append = results.append
    remaining = iter(segments)
    while len(results) < len(segments):
        try:
            for segment in remaining:
                append(call(segment))
        except Exception as error:
            failures.append((len(results), error))
            append(None)
    return results, failures


def _call_batch(
    call: Callable[[list[Segment]], Any], segments: list[Segment]
) -> tuple[list[Any], list[Failure]]:
    try:
        results = call(list(segments))
        if not isinstance(results, list | tuple) or len(results) != len(segments):
            raise UserFunctionError(_wrong_batch(results, len(segments)))
        return list(results), []
    except Exception as error:
        return [None] * len(segments), [(index, error) for index in range(len(segments))]


def _wrong_batch(results: Any, expected: int) -> str:
    came = f"{len(results)} results" if isinstance(results, list | tuple) else _describe(results)
    return (
        f"the batch function returned {came} for {expected} segments: it must return a list with "
        f"one result a segment (a dict, None, or a list of dicts)"
    )


_DICT, _DICT_OR_NONE, _LIST = {dict}, {dict, NoneType}, {list}


def flatten(results: list[Any]) -> Leaves:
    """Leaves of one result a segment; results that are no segments become failures."""
    kinds = set(map(type, results))
    if kinds == _DICT:
        return Leaves(results)
    if kinds <= _DICT_OR_NONE:
        segments = [result for result in results if result is not None]
        return Leaves(segments, _indices_of_results(results, len(segments)))
    if kinds == _LIST and set(map(type, chain.from_iterable(results))) <= _DICT:
        return _leaves_of_lists(results, [])
    failures: list[Failure] = []
    lists: list[Sequence[Segment]] = []
    for index, result in enumerate(results):
        try:
            lists.append(_as_list(result))
        except Exception as error:
            failures.append((index, error))
            lists.append(())
    return _leaves_of_lists(lists, failures)


def _indices_of_results(results: list[Any], count: int) -> Indices:
    """Where `results` is not None. Truth is the fast test, right unless a segment is empty."""
    found = np.flatnonzero(np.fromiter(map(bool, results), np.bool_, len(results)))
    if len(found) == count:
        return found
    return np.array([i for i, result in enumerate(results) if result is not None], dtype=np.intp)


def _leaves_of_lists(lists: Sequence[Sequence[Segment]], failures: list[Failure]) -> Leaves:
    counts = np.fromiter(map(len, lists), np.intp, len(lists))
    segments = list(chain.from_iterable(lists))
    parents = np.repeat(np.arange(len(lists)), counts)
    if len(segments) == len(lists) and not failures and counts.min(initial=1) == 1:
        return Leaves(segments)
    firsts = np.cumsum(counts) - counts
    child_index = np.arange(len(segments)) - firsts[parents]
    return Leaves(segments, parents, child_index, failures)


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
