"""Take over the state of shards from whoever had them before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onyx.flow.batch import U64, Segment
from onyx.settings import StateSettings
from onyx.state.chunks import Watermark
from onyx.state.log import StateLog
from onyx.state.interface import ChunkStore

Progress = Callable[[int, int], None]
"""Hears bytes read so far and bytes to read; called from the thread that recovers."""


class ShardState:
    """What is known of one shard."""

    emitted: list[tuple[int, Segment]]
    """Not settled, by position."""
    settled: int
    next_position: int
    """Of the next segment that the shard emits."""
    closed: bool
    keys: list[Any]

    def records(self) -> Iterator[list[Any]]:
        """Lists of records for `TaskWindows.restore`, in order; decoded as they are asked for."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Recovered:
    log: StateLog
    """Open, new, and this peer's alone."""
    shards: Mapping[int, ShardState]
    """Every shard that was asked for, new ones empty."""
    roots: U64
    """Of the segments applied, attempt bits cleared; also some that other peers' shards have."""
    ids: U64
    forgotten: Mapping[int, int]
    """Frontiers by partition that the ids were last filtered by."""
    watermark: Watermark | None
    """Lowest of the logs that the shards come from; None if one of them had none."""


def recover(
    store: ChunkStore,
    job: str,
    task: str,
    version: int,
    rank: int,
    shards: Iterable[int],
    settings: StateSettings,
    progress: Progress = lambda done, total: None,
) -> Recovered:
    """Fence the logs of older allocation versions, read what they say of these shards, and open
    the log of this version and rank. Blocks. To be repeated as it is when it fails.

    Raises:
        Fenced: a newer version has begun.
        StateError: a chunk is damaged, missing or foreign.
        Unavailable, UserError: as everything of the store.
    """
    raise NotImplementedError
