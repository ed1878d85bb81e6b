"""Folding segments into the states of numbered extents, as a batch or one by one.

Segments that are only counted are counted apart, and get into the states when somebody looks: one
small dict, which stays in the cache, instead of the states of all groups and a list of those that
have changed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from onyx.flow.columns.record_batch import Columns
from onyx.keystate.buckets import Bucket
from onyx.keystate.coded import Groups, Keyed, Values, different, rows
from onyx.keystate.groups import Keys
from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.aggregations.count import Count
from onyx.windows.types.changes import Changes
from onyx.windows.types.extent_states import ExtentStates
from onyx.windows.types.waiting import Waiting


class Folding:
    """The folding of one window on one peer."""

    def __init__(
        self,
        aggregation: Aggregation,
        in_memory: bool,
        bucket: Callable[[int], Bucket],
        states: ExtentStates,
        changes: Changes,
        waiting: Waiting,
    ) -> None:
        """`bucket` gives the states of an extent, and begins it if need be."""
        self._aggregation = aggregation
        self._bucket = bucket
        self._states = states
        self._changes = changes
        self._waiting = waiting
        self.counts = isinstance(aggregation, Count) and in_memory and not states.in_arrays
        """Whether segments are only counted."""
        self._counted: defaultdict[int, Counter[Any]] = defaultdict(Counter)
        """Segments of each group that are not in its state yet, by extent."""

    def add(self, number: int, keys: Keyed, extracted: Values) -> None:
        """Apply segments to one extent."""
        if not self.counts:
            self._fold(number, keys, extracted)
        elif isinstance(keys, Groups):
            self._counted[number].update(dict(zip(keys.keys, keys.counts(), strict=True)))
        else:
            self._counted[number].update(keys)

    def add_one(self, number: int, key: Any, extracted: Any) -> None:
        """Adds for one segment, faster."""
        touched: Keys = {key: None}
        if not self._aggregation.closed:
            self._fold(number, [key], [extracted])
            return
        bucket, aggregation = self._bucket(number), self._aggregation
        state = bucket[key]
        try:
            state = aggregation.apply(state, aggregation.create(state, extracted))
        except TypeError as error:
            raise aggregation.refuse([extracted], error) from error
        self._states.put(number, key, state)
        bucket.used(touched)
        self._waiting.touch(number, touched)

    def settle(self) -> None:
        """Get what was only counted into the states."""
        if not self._counted:
            return
        assert isinstance(self._aggregation, Count)
        for number, counts in self._counted.items():
            bucket = self._bucket(number)
            states = self._aggregation.add(bucket, counts)
            bucket.used(states)
            self._waiting.touch(number, states)
            self._changes.states(number, states)
        self._counted.clear()

    def _fold(self, number: int, keys: Keyed, extracted: Values) -> None:
        self._bucket(number)
        in_arrays = self._states.fold(number, keys, extracted)
        if in_arrays is not None:
            self._waiting.touch(number, in_arrays)
            return
        bucket, touched = self._states[number], different(keys)
        try:
            if not self._aggregation.closed:
                self._changes.fold(number, bucket, *self._aggregation.steps(keys, extracted))
            elif isinstance(keys, Groups) or isinstance(extracted, Columns):
                groups = keys if isinstance(keys, Groups) else Groups.of_rows(keys)
                self._aggregation.fold_groups(bucket, groups, extracted)
                self._changes.states(number, touched)
            else:
                self._aggregation.fold(bucket, keys, rows(extracted))
                self._changes.states(number, touched)
        except TypeError as error:
            raise self._aggregation.refuse(rows(extracted), error) from error
        bucket.used(touched)
        self._waiting.touch(number, touched)
