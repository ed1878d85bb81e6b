"""Results of firings on their way out: what is emitted of each, page by page.

A result is complete before anything of it is emitted, and never changes. So a position in it says
what was emitted: whoever recovers a shard goes on there, with the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from msgspec import field
from msgspec.structs import replace

from onyx.keystate.extents import Number
from onyx.keystate.records import EventType, SpooledEmitted, SpooledFired
from onyx.spark.windows.spool import Spool

THROUGH = -1
"""In place of a file: all is emitted."""


class Outcome(msgspec.Struct, eq=False):
    """What one trigger made fire, for shards of which as much is emitted."""

    name: str
    trigger: str
    event_type: EventType
    watermark: Number | None
    shards: frozenset[int]
    own: bool
    """Whether this peer has made it in this allocation version."""
    file: int = 0
    row: int = 0

    def batches(self, folder: Spool, rows_max: int) -> Iterator[pa.RecordBatch]:
        """What is left, in bounded batches; the position is behind each when it is given."""
        files = folder.files(self.name)
        while self.file < len(files):
            skipped = self.row
            with folder.opened(files[self.file]) as file:
                end = 0
                for batch in file.iter_batches(rows_max):
                    first, end = end, end + batch.num_rows
                    if end <= skipped:
                        continue
                    self.row = end
                    yield batch.slice(max(0, skipped - first))
            self.file, self.row = self.file + 1, 0

    def fired(self, window: str) -> SpooledFired:
        """The record of it, without the extents that lost their parts then."""
        return SpooledFired(window, self.trigger, self.name, self.event_type, [], self.watermark)

    def emitted(self, window: str) -> SpooledEmitted:
        """The record of its position."""
        return SpooledEmitted(window, self.trigger, self.name, self.file, self.row)


class Restored(msgspec.Struct):
    """Outcomes as records tell them, shard by shard."""

    firsts: dict[str, Outcome] = field(default_factory=dict)
    """By name, without shards."""
    positions: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """By name and shard; those that are through are left out."""

    def fired(self, shard: int, record: SpooledFired) -> None:
        """A firing of a shard."""
        self.firsts[record.name] = Outcome(
            record.name,
            record.trigger,
            record.event_type,
            record.watermark,
            frozenset(),
            own=False,
        )
        self.positions.setdefault(record.name, {})[shard] = (0, 0)

    def emitted(self, shard: int, record: SpooledEmitted) -> None:
        """How far it is."""
        if record.file == THROUGH:
            self.positions.get(record.name, {}).pop(shard, None)
        elif record.name in self.positions:
            self.positions[record.name][shard] = (record.file, record.row)

    @property
    def pending(self) -> bool:
        """Whether some are not through."""
        return any(self.positions.values())

    def take(self) -> list[Outcome]:
        """The outcomes that are not through, one for each position."""
        found = []
        for name, positions in self.positions.items():
            for file, row in sorted(set(positions.values())):
                mine = frozenset(shard for shard, at in positions.items() if at == (file, row))
                found.append(replace(self.firsts[name], shards=mine, file=file, row=row))
        self.firsts, self.positions = {}, {}
        return found
