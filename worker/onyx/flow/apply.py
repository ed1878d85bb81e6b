"""Apply a task's function to a batch.

A function returns a dict (one segment), None or an empty list (the segment ends here), or a list,
tuple or generator of dicts. What it raises does not lose the other segments of the batch, and no
segment is given to it twice: the loop continues behind the one that failed. The kinds of results
are checked afterwards, for the whole batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from onyx.errors import UserError, UserFunctionError, contained, describe_type
from onyx.flow.batch import Segment
from onyx.flow.leaves import Leaves, flatten
from onyx.flow.segment_failure import SegmentFailure
from onyx.functions.returning import one_by_one
from onyx.model.job import CatalogEntry

__all__ = ["Leaves", "apply_function", "resolve_params"]


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
    return flatten(*_call_each(call, segments))


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
    call: Callable[[Any], Any], arguments: Sequence[Any]
) -> tuple[list[Any], list[SegmentFailure]]:
    """One result an argument, None where it raised, and what it raised there."""
    results: list[Any] = []
    failures: list[SegmentFailure] = []
    remaining = map(call, one_by_one(arguments))
    while True:
        error: Exception = StopIteration()
        try:
            results.extend(remaining)  # keeps what came before an exception
        except BaseException as raised:
            error = contained(raised)
        if len(results) == len(arguments):
            return results, failures
        # A StopIteration of the function's looks like the end.
        failures.append((len(results), error))
        results.append(None)


def _apply_batch(call: Callable[[list[Segment]], Any], segments: list[Segment]) -> Leaves:
    try:
        results = call(list(segments))
        if not isinstance(results, list | tuple) or len(results) != len(segments):
            raise UserFunctionError(_wrong_batch(results, len(segments)))
    except BaseException as raised:
        error = contained(raised)
        nothing = np.empty(0, dtype=np.intp)
        return Leaves([], nothing, None, [(index, error) for index in range(len(segments))])
    return flatten(list(results), [])


def _wrong_batch(results: Any, expected: int) -> str:
    came = (
        f"{len(results)} results" if isinstance(results, list | tuple) else describe_type(results)
    )
    return (
        f"the batch function returned {came} for {expected} segments: it must return a list with "
        f"one result a segment (a dict, None, or a list of dicts)"
    )
