"""What an aggregation is: it computes the state of an extent and group from segments.

An aggregation has a state of its own form, kept for each extent and group, and a *view* of it that
users see. What a segment does to a state is an *update*: `create` makes it, `apply` carries it out.
Aggregations are of two kinds, by what is recorded of a change:

* *closed*: the state is small and does not grow (count, sum, min, max, average). It is recorded as
  it is, once for however many segments have changed it.
* *open*: the state may be of any size (conj, the collecting ones, the user's own). Its updates are
  recorded and applied again, in order.

`fold` takes a whole batch for one extent; it does what `create` and `apply` do one by one, and so
does `fold_groups` with the rows of columns.
`array_form` says how the states of many groups are kept as columns (`windows/arrays`).
`finish` makes a state of what an engine of columns has counted and merged (`model.kinds.Native`).
Each aggregation is a class with these methods, and a row in `table` and in `model.kinds`.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any

from onyx.flow.batch import Segments as Segments
from onyx.flow.batch import as_dicts
from onyx.keystate.buckets import BucketForm
from onyx.keystate.coded import Groups, Keyed, Values, rows
from onyx.windows.aggregations.array_forms import ArrayForm

States = MutableMapping[Any, Any]
"""States by group; one that is not there begins with the first state."""


class Aggregation:
    """What is computed over the segments of an extent and group."""

    closed: bool = True
    """Whether the state is small and recorded as a whole; if not, its updates are recorded."""
    mergeable: bool = True
    """Whether `merge` works, which windows need whose extents merge."""
    merged_by: str = "super_aggregation"
    """The user's function that `merge` calls, for messages."""

    def __init__(self, where: str = "", key: str = "", initial: Any = None) -> None:
        """
        Args:
            where: begins messages about segments.
            key: of the segments, the one to look at, if the aggregation looks at one.
            initial: the window's `init`.
        """
        self._where = where
        self._key = key
        self._initial = initial

    def init(self) -> Any:
        """The first state."""
        raise NotImplementedError

    def extract(self, segments: Segments) -> Values:
        """What `create` looks at, for each segment: found once, however many extents have it.

        Columns become dicts, unless the aggregation can do with less.

        Raises:
            UserError: a segment has nothing that can be computed with, whatever the state.
        """
        return as_dicts(segments)

    def create(self, state: Any, extracted: Any) -> Any:
        """The update that a segment makes."""
        return extracted

    def apply(self, state: Any, update: Any) -> Any:
        """The state after an update; the one before is not used any more."""
        raise NotImplementedError

    def step(self, state: Any, extracted: Any) -> tuple[Any, Any]:
        """The state after a segment, and the update that the segment has made."""
        update = self.create(state, extracted)
        return self.apply(state, update), update

    def fold(self, bucket: States, keys: Sequence[Any], extracted: Sequence[Any]) -> None:
        """Apply what the segments of a batch do, in order."""
        create, apply = self.create, self.apply
        for key, each in zip(keys, extracted, strict=True):
            state = bucket[key]
            bucket[key] = apply(state, create(state, each))

    def gather(self, extracted: Iterable[Any]) -> Any:
        """The state of a new group that has got all of these, in order."""
        state = self.init()
        for each in extracted:
            state = self.apply(state, self.create(state, each))
        return state

    def finish(self, count: int, numbers: Sequence[Any]) -> Any:
        """The state of a new group of which an engine of columns has computed the native form.

        Args:
            count: of its segments, if it was asked for.
            numbers: that the engine has merged into one, or into one of each type.
        """
        return self.gather(numbers)

    def steps(self, keys: Keyed, extracted: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """For each update that a batch makes, in order, its group and what `create` looks at."""
        return rows(keys), rows(extracted)

    def fold_groups(self, bucket: States, groups: Groups, values: Values) -> None:
        """Folds groups for rows of columns."""
        self.fold(bucket, groups.rows(), rows(values))

    def merge(self, one: Any, other: Any) -> Any:
        """The state of an extent made of two; neither is used any more."""
        raise NotImplementedError

    def view(self, state: Any) -> Any:
        """What users see: a value of its own."""
        return state

    def from_view(self, view: Any) -> Any:
        """The state behind what a user's refinement has made of a view."""
        return view

    def dump(self, state: Any) -> Any:
        """The state as plain data, a value of its own."""
        return state

    def dump_all(self, states: list[Any]) -> list[Any]:
        """Dumps for many, in a list of its own."""
        if self._is_plain:
            return states
        return [self.dump(state) for state in states]

    def load(self, data: Any) -> Any:
        """The state from what `dump` gave."""
        return data

    def form(self) -> BucketForm:
        """What the buckets of its states hold."""
        load = self.load
        return BucketForm(self.init, self.dump, lambda key, data: load(data), self._is_plain)

    def array_form(self) -> ArrayForm | None:
        """How the states of many groups are kept in arrays; None: they are not."""
        return None

    @property
    def _is_plain(self) -> bool:
        return type(self).dump is Aggregation.dump

    def refuse(self, extracted: Sequence[Any], error: Exception) -> Exception:
        """What to raise when values cannot be computed with."""
        return error
