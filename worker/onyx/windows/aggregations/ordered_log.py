"""The storage strategy `ordered-log`: an aggregation over segments in order of their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from onyx.flow.batch import Segment
from onyx.windows.aggregations.aggregation import Aggregation


class OrderedLog(Aggregation):
    """Another aggregation over the segments in order of their place, computed when it is looked at.

    What is stored are the segments with their places; arrival decides between equal places.
    """

    closed = False
    mergeable = False

    def __init__(self, inner: Aggregation, place_of: Callable[[Segment], Any]) -> None:
        super().__init__()
        self._inner = inner
        self._place_of = place_of

    def init(self) -> list[list[Any]]:
        """No segments."""
        return []

    def create(self, state: Any, extracted: Segment) -> list[Any]:
        """The place of the segment, and a copy of it."""
        return [self._place_of(extracted), dict(extracted)]

    def apply(self, state: list[list[Any]], update: list[Any]) -> list[list[Any]]:
        """Append both; they are sorted when the state is viewed."""
        state.append(update)
        return state

    def view(self, state: list[list[Any]]) -> Any:
        """What the other aggregation makes of the segments in order."""
        inner = self._inner
        total = inner.init()
        ordered = sorted(state, key=itemgetter(0))
        for each in inner.extract([segment for _, segment in ordered]):
            total = inner.apply(total, inner.create(total, each))
        return inner.view(total)

    def dump(self, state: list[list[Any]]) -> list[list[Any]]:
        """The list, copied."""
        return list(state)

    def load(self, data: Sequence[list[Any]]) -> list[list[Any]]:
        """The list, copied."""
        return list(data)
