"""The form of a windowed task's changes in chunks of its state log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from onyx.codec.segments import size_bytes
from onyx.flow.batch import U64, Segment
from onyx.state.chunks import ShardChange
from onyx.task.windowed.emissions import Emission
from onyx.windows.records import Record

Taken = dict[int, list[tuple[int, Emission]]]
"""Emissions with their positions, by shard."""
Columns = tuple[U64, U64]
"""Roots, and ids or values."""
NO_COLUMNS = np.empty(0, dtype=np.uint64)


class Whole(Mapping[int, ShardChange]):
    """A snapshot, of which only the shard that is being written need be in memory."""

    def __init__(
        self, shards: dict[int, ShardChange], records: Callable[[int], list[Record]]
    ) -> None:
        self._shards = shards
        self._records = records

    def __getitem__(self, shard: int) -> ShardChange:
        return replace(self._shards[shard], records=self._records(shard))

    def __iter__(self) -> Iterator[int]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)


def stored(emitted: Sequence[tuple[int, Emission]]) -> list[tuple[int, Segment]]:
    return [
        (position, {"segment": each.segment, "child": each.child}) for position, each in emitted
    ]


def restored(stored: tuple[int, Segment]) -> Emission:
    return emissions_of([stored[1]["segment"]], stored[1]["child"])[0]


def emissions_of(segments: Sequence[Segment], child: str | None) -> list[Emission]:
    """With their mean size."""
    if not segments:
        return []
    mean_bytes = size_bytes(segments) // len(segments)
    return [Emission(segment, child, mean_bytes) for segment in segments]
