"""Aggregations that keep segments or values: `conj`, `collect-key-value`, `collect-by-key`, and the
storage strategy `ordered-log`, another aggregation over segments in order of their coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from onyx.errors import UserError
from onyx.flow.batch import Segment, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.flow.instants import looked_up
from onyx.keystate.coded import Values
from onyx.keystate.copies import copied
from onyx.windows.aggregations.aggregation import Aggregation, Segments


class Conj(Aggregation):
    """All segments, in order of arrival.

    They are copied when they come and when they are shown: the next task, and the user's functions,
    may change theirs.
    """

    closed = False

    def init(self) -> list[Segment]:
        """No segments."""
        return []

    def create(self, state: Any, extracted: Segment) -> Any:
        """A copy of the segment."""
        return dict(extracted)

    def apply(self, state: list[Any], update: Any) -> list[Any]:
        """Append the copy."""
        state.append(update)
        return state

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        """The segments of `one` come first."""
        return one + other

    def view(self, state: list[Any]) -> list[Any]:
        """Copies of the segments."""
        return [segment.copy() for segment in state]

    def from_view(self, view: Sequence[Any]) -> list[Any]:
        """A list of what the user gives."""
        return list(view)

    def dump(self, state: list[Any]) -> list[Any]:
        """The list, copied."""
        return list(state)

    def load(self, data: Sequence[Any]) -> list[Any]:
        """The list, copied."""
        return list(data)


class CollectKeyValue(Conj):
    """The values of a key, in order of arrival; None for segments without it."""

    def extract(self, segments: Segments) -> Values:
        """The segments of columns, with this key alone."""
        extract = format_of(segments).choose(super().extract, self._of_columns)
        return extract(segments)

    def _of_columns(self, columns: Columns) -> Values:
        return super().extract(columns.only([self._key]))

    def create(self, state: Any, extracted: Segment) -> Any:
        """A copy of the value of the key; None if the segment lacks it."""
        return copied(extracted.get(self._key))

    def view(self, state: list[Any]) -> list[Any]:
        """Copies of the values."""
        values: list[Any] = copied(state)
        return values


class CollectByKey(Aggregation):
    """All segments by the value of a key; those without it are under None."""

    closed = False

    def init(self) -> dict[Any, list[Segment]]:
        """No values."""
        return {}

    def extract(self, segments: Segments) -> Values:
        """The segments, if each value of the key can be the key of a dict."""
        found = super().extract(segments)
        for segment in found:
            value = segment.get(self._key)
            try:
                hash(value)
            except TypeError:
                raise UserError(
                    f"{self._where}: key {self._key!r} holds a {type(value).__name__}, by which "
                    "nothing can be collected; use text, a number or None"
                ) from None
        return found

    def create(self, state: Any, extracted: Segment) -> Segment:
        """A copy of the segment."""
        return dict(extracted)

    def apply(self, state: dict[Any, list[Any]], update: Segment) -> dict[Any, list[Any]]:
        """Append the copy to the list of its value."""
        state.setdefault(looked_up(update.get(self._key)), []).append(update)
        return state

    def merge(self, one: dict[Any, list[Any]], other: dict[Any, list[Any]]) -> Any:
        """For each value, the segments of `one` come first."""
        for value, segments in other.items():
            one.setdefault(value, []).extend(segments)
        return one

    def view(self, state: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
        """Copies of the segments."""
        return {
            value: [segment.copy() for segment in segments] for value, segments in state.items()
        }

    def from_view(self, view: Mapping[Any, Sequence[Any]]) -> dict[Any, list[Any]]:
        """A dict of lists of what the user gives."""
        return {value: list(segments) for value, segments in view.items()}

    def dump(self, state: dict[Any, list[Any]]) -> list[Any]:
        """Pairs of a value and its segments, because not every value can be a key in msgpack."""
        return [[value, list(segments)] for value, segments in state.items()]

    def load(self, data: Sequence[Any]) -> dict[Any, list[Any]]:
        """The dict of those pairs."""
        return {value: list(segments) for value, segments in data}


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
