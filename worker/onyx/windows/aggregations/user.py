"""A user's own aggregation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onyx.flow.batch import as_columns, as_dicts
from onyx.flow.columns.record_batch import Columns, from_dicts
from onyx.keystate.coded import Groups, Keyed
from onyx.keystate.copies import copied, copied_twice
from onyx.model.job import Window
from onyx.windows.aggregations.aggregation import Aggregation, Segments
from onyx.windows.user_functions import Call


class UserAggregation(Aggregation):
    """The user's functions, which may change what they are given: so each gets its own copy."""

    closed = False

    def __init__(self, window: Window, calls: Mapping[str, Call]) -> None:
        super().__init__()
        self._window = window
        self._calls = calls
        self._create = calls["create_state_update"]
        self._apply = calls["apply_state_update"]
        self.mergeable = "super_aggregation" in calls

    def init(self) -> Any:
        """What the user's `init` returns, or a copy of the window's `init`."""
        if "init" in self._calls:
            return self._calls["init"](self._window)
        return copied(self._window.init)

    def create(self, state: Any, extracted: Any) -> Any:
        """A copy of what `create_state_update` returns."""
        return copied(self._create(self._window, state, extracted))

    def apply(self, state: Any, update: Any) -> Any:
        """Call `apply_state_update` with a copy of the update, which is recorded too."""
        return self._apply(self._window, state, copied(update))

    def step(self, state: Any, extracted: Any) -> tuple[Any, Any]:
        """Both calls for a segment: the copies are made at once."""
        update, given = copied_twice(self._create(self._window, state, extracted))
        return self._apply(self._window, state, given), update

    def merge(self, one: Any, other: Any) -> Any:
        """Call `super_aggregation`."""
        return self._calls["super_aggregation"](self._window, one, other)

    def view(self, state: Any) -> Any:
        """A copy."""
        return copied(state)

    def from_view(self, view: Any) -> Any:
        """A copy."""
        return copied(view)

    def dump(self, state: Any) -> Any:
        """A copy."""
        return copied(state)

    def load(self, data: Any) -> Any:
        """A copy."""
        return copied(data)


class ColumnsAggregation(UserAggregation):
    """One whose `create_state_update` gets a record batch: all segments of a batch that are in one
    extent and group, so that the user's code takes a step for these and none for each row."""

    def extract(self, segments: Segments) -> Any:
        """Columns; of dicts that do not fit together each by itself."""
        return columns_of(segments)

    def create(self, state: Any, extracted: Columns) -> Any:
        """A copy of what `create_state_update` returns for a part of a batch."""
        return super().create(state, extracted.record_batch)

    def step(self, state: Any, extracted: Columns) -> tuple[Any, Any]:
        """Both calls for a part of a batch."""
        return super().step(state, extracted.record_batch)

    def steps(self, keys: Keyed, extracted: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """A step for each group."""
        if not isinstance(extracted, Columns):
            return super().steps(keys, extracted)
        groups = keys if isinstance(keys, Groups) else Groups.of_rows(keys)
        ordered = extracted.take(np.argsort(groups.codes, kind="stable"))
        ends = np.cumsum(groups.counts()).tolist()
        bounds = zip([0, *ends], ends, strict=False)
        return groups.keys, [ordered.slice(first, end) for first, end in bounds]


def columns_of(segments: Segments) -> Columns | list[Columns]:
    """Segments as columns; dicts that do not fit together each by itself."""
    columns, kept, _ = as_columns(segments)
    return columns if kept is None else [from_dicts([each])[0] for each in as_dicts(segments)]
