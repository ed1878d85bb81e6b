"""Which partitions the segments of a request go to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from onyx.flow.batch import Indices, Segments, take
from onyx.flow.groups.getters import key_getter
from onyx.flow.groups.grouping import Grouping
from onyx.flow.groups.hashes import text_hash
from onyx.flow.segment_failure import Refusal
from onyx.ledger.outcomes import Outcomes
from onyx.model.job import CatalogEntry
from onyx.requests.content import Refused


def partition_of(request_id: str, partitions: int) -> int:
    """Where a request goes: the same under the same id, or it would not be recognized."""
    return text_hash(request_id.encode()) % partitions


class Portion(NamedTuple):
    """The segments of a request that go to one partition, in order."""

    segments: Segments
    numbers: Indices | None = None
    """Numbers of the segments in the request; None: all are there."""

    def numbered(self, outcomes: Outcomes) -> Outcomes:
        """What became of them, by their numbers in the request."""
        if self.numbers is None or not outcomes.failures:
            return outcomes
        failures = tuple(
            each if each.segment is None else each._replace(segment=int(self.numbers[each.segment]))
            for each in outcomes.failures
        )
        return replace(outcomes, failures=failures)


def parts_of(segments: Segments, key: str | None, home: int, partitions: int) -> dict[int, Portion]:
    """The segments of each partition.

    Args:
        key: segments with the same value of it go to the same partition; None: all go home.
        home: the partition of the request's id.

    Raises:
        Refused: a segment has no such key, or one that nothing can be grouped by.
    """
    if key is None or partitions == 1:
        return {home: Portion(segments)}
    entry = CatalogEntry(name="requests", type="function", group_by_key=key)
    getter = key_getter(entry, _no_function)
    assert getter is not None, "the entry has a key"
    try:
        hashes = Grouping(getter, entry).hashes_of(segments)
    except Refusal as error:
        raise Refused(f"partitionKey {key!r}: {error}") from error
    numbers = (hashes % np.uint64(partitions)).astype(np.intp)
    found = {int(number): np.flatnonzero(numbers == number) for number in np.unique(numbers)}
    return {number: Portion(take(segments, rows), rows) for number, rows in found.items()}


def _no_function(name: str) -> Callable[..., Any]:
    raise AssertionError(f"a key is no function: {name}")
