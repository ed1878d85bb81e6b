"""Aggregation `count`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onyx.flow.batch import Segment, format_of
from onyx.flow.columns.record_batch import Columns
from onyx.keystate.coded import Groups, Values
from onyx.windows.aggregations.aggregation import Aggregation, Segments, States
from onyx.windows.aggregations.array_forms import ArrayForm, CountForm


class Count(Aggregation):
    """How many segments."""

    def init(self) -> int:
        """Zero."""
        return 0

    def create(self, state: int, extracted: Any) -> None:
        """Every segment counts the same."""
        return

    def apply(self, state: int, update: Any) -> int:
        """One more."""
        return state + 1

    def extract(self, segments: Segments) -> Values:
        """Nothing that anybody looks at."""
        return format_of(segments).choose(_themselves, _unseen)(segments)

    def fold(self, bucket: States, keys: Sequence[Any], extracted: Sequence[Any]) -> None:
        """Count all segments of a batch at once."""
        self.add(bucket, Counter(keys))

    def fold_groups(self, bucket: States, groups: Groups, values: Values) -> None:
        """Count the rows of each group."""
        self.add(bucket, dict(zip(groups.keys, groups.counts(), strict=True)))

    def add(self, bucket: States, counts: Mapping[Any, int]) -> dict[Any, int]:
        """Apply so many segments of each group; gives their states."""
        states = {key: bucket[key] + many for key, many in counts.items()}
        bucket.update(states)
        return states

    def array_form(self) -> ArrayForm:
        """A column of counts."""
        return CountForm()

    def finish(self, count: int, numbers: Sequence[Any]) -> int:
        """The count."""
        return count

    def merge(self, one: int, other: int) -> int:
        """The sum of both counts."""
        return one + other


def _themselves(segments: list[Segment]) -> Values:
    return segments


def _unseen(columns: Columns) -> Values:
    return np.empty(len(columns), np.bool_)
