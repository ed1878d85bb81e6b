"""What one window keeps, as records: its extents, and what triggers, timers and watermarks know.

Each of these makes and takes back its own records; here all of them are gone through, and a record
finds the one that has made it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from typing import Any, Protocol

from onyx.keystate.buckets import Frozen
from onyx.keystate.records import (
    DeleteTriggerStates,
    FiringProgress,
    Record,
    Records,
    SetTriggerStates,
    TimerDue,
    WatermarkReached,
)
from onyx.windows.shard_watermarks import ShardWatermarks
from onyx.windows.triggers.progress import Course, Progress
from onyx.windows.triggers.timers import Timers
from onyx.windows.triggers.trigger import Trigger
from onyx.windows.types.extents import Extents


class Recorded(Protocol):
    """A part of a window that is recorded by itself."""

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        ...

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add all of some shards."""
        ...

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        ...


class Kept:
    """The records of one window on one peer."""

    def __init__(
        self,
        extents: Extents[Any],
        triggers: Mapping[str, Trigger],
        timers: Timers,
        progress: Progress,
        watermarks: ShardWatermarks,
    ) -> None:
        self._extents = extents
        self._triggers = triggers
        states = [each.states for each in triggers.values()]
        self._each: tuple[Recorded, ...] = (extents, *states, timers, progress, watermarks)
        self._timers = timers
        self._progress = progress
        self._watermarks = watermarks

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        for each in self._each:
            each.take_changes(records)

    def snapshot(
        self, frozen: Frozen, shards: Collection[int]
    ) -> Callable[[int], Iterator[Record]]:
        """What gives the whole state of each of these shards, as it is now."""
        states = self._extents.states(frozen)
        rest: Records = {}
        for each in self._each:
            each.snapshot(shards, rest)
        return lambda shard: chain(states(shard), rest.get(shard, ()))

    def restore(self, shard: int, record: Record) -> None:
        """Apply a record; that of a trigger which is not declared any more is left out."""
        match record:
            case SetTriggerStates(trigger=name) | DeleteTriggerStates(trigger=name):
                if name in self._triggers:
                    self._triggers[name].states.restore(record)
            case TimerDue(trigger=name):
                self._timers.restore(shard, record)
                self._progress.forget(Course(name, "timer-tick", shard))
            case FiringProgress():
                self._progress.restore(shard, record)
            case WatermarkReached():
                self._watermarks.restore(shard, record)
            case _:
                self._extents.restore(shard, record)

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now, with what has changed in them."""
        for each in self._each:
            each.drop(shards)
