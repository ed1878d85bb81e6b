"""How a segment fails: the form in which everything that refuses one reports it.

A failure is `(index of the segment in its batch, exception)`, whoever found it: the function, a
window, the grouping of a child, the codec. A batch gathers its failures, and one place decides what
becomes of each (`routing`). Raising at once was rejected: the other segments of a batch would fail
with the first bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from onyx.errors import UserError, contained

SegmentFailure = tuple[int, Exception]
"""Index of the segment in the batch, and what was raised for it."""
T = TypeVar("T")


class RetriesExhausted(UserError):
    """A flow condition asks for a retry, and the segment has been retried as often as it may."""


class Refusal(UserError):
    """A segment that its task or the next one cannot take. The message says all."""


def one_by_one(
    check: Callable[[Sequence[T]], object], items: Sequence[T], first: int = 0
) -> list[SegmentFailure]:
    """Which of the items make `check` raise: for a batch of which some do.

    Args:
        check: raises for a sequence that has a bad item.
        first: index of the first item.
    """
    failures: list[SegmentFailure] = []
    for index, item in enumerate(items, first):
        try:
            check([item])
        except BaseException as error:
            failures.append((index, contained(error)))
    return failures
