"""Which partitions the segments of a request go to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onyx.flow.batch import Segments, take
from onyx.flow.groups.getters import key_getter
from onyx.flow.groups.grouping import Grouping
from onyx.flow.groups.hashes import text_hash
from onyx.flow.segment_failure import Refusal
from onyx.model.job import CatalogEntry
from onyx.requests.content import Refused


def partition_of(request_id: str, partitions: int) -> int:
    """Where a request goes: the same under the same id, or it would not be recognized."""
    return text_hash(request_id.encode()) % partitions


def parts_of(
    segments: Segments, key: str | None, home: int, partitions: int
) -> dict[int, Segments]:
    """The segments of each partition, in order.

    Args:
        key: segments with the same value of it go to the same partition; None: all go home.
        home: the partition of the request's id.

    Raises:
        Refused: a segment has no such key, or one that nothing can be grouped by.
    """
    if key is None or partitions == 1:
        return {home: segments}
    entry = CatalogEntry(name="requests", type="function", group_by_key=key)
    getter = key_getter(entry, _no_function)
    assert getter is not None, "the entry has a key"
    try:
        hashes = Grouping(getter, entry).hashes_of(segments)
    except Refusal as error:
        raise Refused(f"partitionKey {key!r}: {error}") from error
    numbers = (hashes % np.uint64(partitions)).astype(np.intp)
    return {
        int(number): take(segments, np.flatnonzero(numbers == number))
        for number in np.unique(numbers)
    }


def _no_function(name: str) -> Callable[..., Any]:
    raise AssertionError(f"a key is no function: {name}")
