"""Aggregation `count`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from onyx.windows.aggregations.aggregation import Aggregation
from onyx.windows.buckets import Bucket


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

    def fold(self, bucket: Bucket, keys: Sequence[Any], extracted: Sequence[Any]) -> None:
        """Count all segments of a batch at once."""
        self.add(bucket, Counter(keys))

    def add(self, bucket: Bucket, counts: Mapping[Any, int]) -> dict[Any, int]:
        """Apply so many segments of each group; gives their states."""
        states = {key: bucket[key] + many for key, many in counts.items()}
        bucket.update(states)
        return states

    def merge(self, one: int, other: int) -> int:
        """The sum of both counts."""
        return one + other
