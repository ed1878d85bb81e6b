"""How far event time has come for one window: for the task, and for shards that differ from it.

A shard has a watermark of its own where the segments are the watermark, and where the state log
says that it was further than the task is now: what was late stays late, whatever peer has the
shard.
"""

from __future__ import annotations

from collections.abc import Collection

from onyx.keystate.extents import Number
from onyx.keystate.groups import Shards
from onyx.keystate.records import Records, WatermarkReached, append

NOTHING_SEEN = float("-inf")


class ShardWatermarks:
    """Watermarks of one window on one peer."""

    def __init__(self, window: str, of_segments: bool, recorded: bool, shards: Shards) -> None:
        """
        Args:
            of_segments: whether the segments are the watermark, because nobody assigns one.
            recorded: whether it matters after a restart how far the watermark was.
        """
        self._window = window
        self._of_segments = of_segments
        self._recorded = recorded
        self._shards = shards
        self._changed = False
        self.task: Number = NOTHING_SEEN
        """The watermark that inputs have assigned."""
        self.own: dict[int, Number] = {}
        """Watermarks of shards that are ahead of the task's, or have their own."""

    def advance(self, watermark: Number) -> None:
        """The watermark that inputs have assigned has risen."""
        self.task = watermark
        self._changed = True
        if self.own and not self._of_segments:
            self.own = {shard: each for shard, each in self.own.items() if each > watermark}

    def rises(self, shard: int, coordinate: Number) -> bool:
        """Whether a segment at `coordinate` is the new watermark of its shard."""
        if coordinate <= self.own.get(shard, NOTHING_SEEN):
            return False
        self.own[shard] = coordinate
        self._changed = True
        return True

    def of(self, shard: int) -> Number:
        """The watermark of a shard, or NOTHING_SEEN."""
        own = self.own.get(shard, NOTHING_SEEN)
        return own if self._of_segments else max(own, self.task)

    def known(self, shard: int) -> Number | None:
        """The watermark for users' functions: None if nothing has been seen."""
        watermark = self.of(shard)
        return None if watermark == NOTHING_SEEN else watermark

    def take_changes(self, records: Records) -> None:
        """Add what has changed since the last time."""
        if self._changed:
            self.snapshot(self._shards.known, records)
        self._changed = False

    def snapshot(self, shards: Collection[int], records: Records) -> None:
        """Add the watermarks of some shards."""
        for shard in shards if self._recorded else ():
            watermark = self.of(shard)
            if watermark != NOTHING_SEEN:
                append(records, shard, WatermarkReached(self._window, watermark))

    def restore(self, shard: int, record: WatermarkReached) -> None:
        """Apply a record."""
        if record.watermark > self.of(shard):
            self.own[shard] = record.watermark

    def drop(self, shards: Collection[int]) -> None:
        """Forget shards that belong to another peer now."""
        for shard in shards:
            self.own.pop(shard, None)
