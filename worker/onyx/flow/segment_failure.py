"""How a segment fails: the form in which everything that refuses one reports it.

A failure is `(index of the segment in its batch, exception)`, whoever found it: the function, a
window, the grouping of a child, the codec. A batch gathers its failures, and one module decides
what becomes of each (`routing`). Raising at once was rejected: the other segments of a batch would
fail with the first bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onyx.errors import UserError, contained
from onyx.flow.columns.record_batch import Columns

SegmentFailure = tuple[int, Exception]
"""Index of the segment in the batch, and what was raised for it."""


class RetriesExhausted(UserError):
    """A flow condition asks for a retry, and the segment has been retried as often as it may."""


class Refusal(UserError):
    """A segment that its task or the next one cannot take. The message says all."""


class BadRecord(Refusal):
    """What an input has read is no segment of its job: the message names where it was read."""


def one_by_one(
    check: Callable[[Any], object], items: Sequence[Any] | Columns, first: int = 0
) -> list[SegmentFailure]:
    """Which of the items make `check` raise: for a batch of which some do.

    Args:
        check: raises for a sequence, or columns, that has a bad item.
        first: index of the first item.
    """
    if isinstance(items, Columns):
        return _by_halves(check, items, first)
    failures: list[SegmentFailure] = []
    for index, item in enumerate(items, first):
        try:
            check([item])
        except BaseException as error:
            failures.append((index, contained(error)))
    return failures


def _by_halves(
    check: Callable[[Any], object], columns: Columns, first: int
) -> list[SegmentFailure]:
    """The bad rows by halves, found for rows of columns: few are bad, and a part costs hardly more
    than one row."""
    try:
        check(columns)
    except BaseException as error:
        if len(columns) <= 1:
            return [(first, contained(error))]
        half = len(columns) // 2
        failures = _by_halves(check, columns.slice(0, half), first)
        return failures + _by_halves(check, columns.slice(half, len(columns)), first + half)
    return []
