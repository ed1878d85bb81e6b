"""All windows of one task on one peer, over the shards of state that the peer owns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from onyx.flow.batch import Segment
from onyx.windows.compile import CompiledWindows
from onyx.windows.firing import ALL, Added, Extent, Firing, Number

Record = list[Any]
"""One change of the state of a shard: plain data that travels and is stored."""


class TaskWindows:
    """State of the windows of a task; nothing here blocks or looks at a clock."""

    def __init__(self, compiled: CompiledWindows, shard_of: Callable[[Any], int]) -> None:
        """`shard_of` gives for the user's value of a group key the shard of its state."""
        raise NotImplementedError

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` is due next, in ms since the epoch; None when no timer runs."""
        raise NotImplementedError

    def add(self, segments: Sequence[Segment], groups: Sequence[Any] | None, now_ms: int) -> Added:
        """Take a batch, with the keys of `groups.hashable_keys`, or None where not grouped.

        Raises:
            UserError: a segment has no place that the window can use.
            UserFunctionError: a function of the user raised.
        """
        raise NotImplementedError

    def tick(self, now_ms: int) -> list[Firing]:
        """Timers that are due fire."""
        raise NotImplementedError

    def advance(self, watermark: Number) -> list[Firing]:
        """The watermark of the task has risen: extents that it has passed fire."""
        raise NotImplementedError

    def complete(self, shards: Collection[int], now_ms: int) -> list[Firing]:
        """The job ends for these shards: every extent fires once more."""
        raise NotImplementedError

    def take_changes(self) -> dict[int, list[Record]]:
        """What has changed since the last call, by shard."""
        raise NotImplementedError

    def restore(self, shard: int, records: Sequence[Record]) -> None:
        """Apply records of `snapshot` or `take_changes`, in order, to a shard."""
        raise NotImplementedError

    def snapshot(self, shard: int) -> list[Record]:
        """The whole state of a shard."""
        raise NotImplementedError

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to others now."""
        raise NotImplementedError

    def query(self, window_id: str, group: Any = ALL) -> list[Extent]:
        """Extents of a window, of one group (the user's value) or of all.

        Raises:
            UserError: there is no such window.
        """
        raise NotImplementedError
