"""The storage strategy `ordered-log`: an aggregation over segments in order of their
coordinates."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from onyx.flow.batch import Segment
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.collecting import Conj


class OrderedLog(Conj):
    """Another aggregation over the segments in order of their coordinate, computed when it is
    looked at.

    What is stored are the segments with their coordinates; arrival decides between equal
    coordinates.
    """

    mergeable = False

    def __init__(self, inner: Aggregation, coordinate_of: Callable[[Segment], Any]) -> None:
        super().__init__()
        self._inner = inner
        self._coordinate_of = coordinate_of

    def create(self, state: Any, extracted: Segment) -> Any:
        """The coordinate of the segment, and a copy of it; they are sorted when the state is
        viewed."""
        return [self._coordinate_of(extracted), dict(extracted)]

    def view(self, state: list[list[Any]]) -> Any:
        """What the other aggregation makes of the segments in order."""
        inner = self._inner
        total = inner.init()
        ordered = sorted(state, key=itemgetter(0))
        for each in inner.extract([segment for _, segment in ordered]):
            total = inner.apply(total, inner.create(total, each))
        return inner.view(total)
