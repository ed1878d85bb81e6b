"""How a segment fails: the form in which everything that refuses one reports it, and its limits.

A failure is `(index of the segment in its batch, exception)`, whoever found it: the function, a
window, the grouping of a child, the codec. A batch gathers its failures, and one place decides what
becomes of each (`routing`). Raising at once was rejected: the other segments of a batch would fail
with the first bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from onyx.errors import UserError, contained
from onyx.flow.batch import Segment

if TYPE_CHECKING:
    from onyx.flow.routed import Outgoing

Failure = tuple[int, Exception]
"""Index of the segment in the batch, and what was raised for it."""
Mask = NDArray[np.bool_]
Letter = Callable[[int, Exception], Segment]
"""The dead letter about a segment of the batch, by its index."""
Refused = Callable[[Mapping[str, "Outgoing"]], list[Failure]]
"""Of what is to be sent to each child, the parents of segments that the child cannot be sent; each
parent once, in order."""
Travels = Callable[[Segment], Exception | None]
"""Why a segment that a condition has made cannot be sent to anybody; None: it can."""
T = TypeVar("T")


class RetriesExhausted(UserError):
    """A flow condition asks for a retry, and the segment has been retried as often as it may."""


class Refusal(UserError):
    """A segment that its task or the next one cannot take. The message says all."""


def _nothing_refused(to: Mapping[str, Outgoing]) -> list[Failure]:
    return []


def _travels(segment: Segment) -> Exception | None:
    return None


@dataclass(frozen=True, slots=True)
class Handling:
    """What is done with the segments of a batch that fail, besides what flow conditions say."""

    dead_letter: str | None = None
    """The child that gets dead letters; None: what no condition takes care of ends the job."""
    letter: Letter | None = None
    exhausted: Mask | None = None
    """Segments of the batch that may not be retried again; None: all may."""
    refused: Refused = _nothing_refused
    travels: Travels = _travels

    def sent(self, segment: Segment) -> Segment:
        """The segment that a condition has made.

        Raises:
            Exception: it cannot travel.
        """
        error = self.travels(segment)
        if error is not None:
            raise error
        return segment

    def is_exhausted(self, parent: int) -> bool:
        """Whether a segment of the batch has no retry left."""
        return self.exhausted is not None and bool(self.exhausted[parent])


def one_by_one(
    check: Callable[[Sequence[T]], object], items: Sequence[T], first: int = 0
) -> list[Failure]:
    """Which of the items make `check` raise: for a batch of which some do.

    Args:
        check: raises for a sequence that has a bad item.
        first: index of the first item.
    """
    failures: list[Failure] = []
    for index, item in enumerate(items, first):
        try:
            check([item])
        except BaseException as error:
            failures.append((index, contained(error)))
    return failures
