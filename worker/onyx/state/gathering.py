"""What a log says of some shards, chunk by chunk: changes add up, a whole snapshot replaces all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
from msgspec import field

from onyx.base.runs import U64, Numbers
from onyx.ledger.applied import Applied
from onyx.state.chunks import ChunkReader, StateChunkKind, Watermark
from onyx.state.shard_state import ShardState

CHUNK_COST_BYTES = 32_768
"""What it costs to read a chunk, however small."""
VALUE_COST_BYTES = 128
"""What it costs to restore a record, or a value in one, however small: one or two microseconds, in
which as many bytes of large values are restored (`python -m benchmarks.bench_restore`)."""


class Size(msgspec.Struct):
    """How long it takes to know the state, as bytes that take as long: what is read, and what is
    restored one by one. Small values take less to read than to restore."""

    snapshot: int = 0
    """The time for snapshots."""
    since: int = 0
    """The time for changes since."""

    def add(self, kind: StateChunkKind, size_bytes: int, values: int) -> None:
        """A chunk of so many bytes and values has to be read as well."""
        cost = size_bytes + VALUE_COST_BYTES * values
        if kind is StateChunkKind.SNAPSHOT:
            self.snapshot += cost
        else:
            self.since += cost + CHUNK_COST_BYTES


class GatheredState(msgspec.Struct):
    """State of shards out of chunks that are taken in order."""

    shards: dict[int, ShardState]
    whole: bool = False
    """Whether nothing before is needed, because a snapshot is among them."""
    first: int = 1
    """Number of the chunk from which on they are needed."""
    watermark: Watermark | None = None
    forgotten: dict[int, int] = field(default_factory=dict)
    size: Size = field(default_factory=Size)
    _columns: list[tuple[Numbers, Numbers]] = field(default_factory=list)
    _parts: GatheredState | None = None
    """The parts of a snapshot that is not complete yet; it may never be."""

    @classmethod
    def of(cls, shards: Iterable[int]) -> GatheredState:
        """Nothing is known of these shards yet."""
        return cls({shard: ShardState() for shard in sorted(shards)})

    def take(self, chunk: ChunkReader) -> None:
        """The next chunk of the log, CHANGE or SNAPSHOT."""
        frame = chunk.frame
        assert frame.kind in (StateChunkKind.CHANGE, StateChunkKind.SNAPSHOT), (
            "the others have nothing of shards"
        )
        if frame.kind is StateChunkKind.CHANGE:
            self._parts = None
            self._add(chunk)
            return
        if frame.seq == frame.start:
            self._parts = GatheredState.of(self.shards)
        parts = self._parts
        if parts is None:
            return
        parts._add(chunk)
        if frame.last:
            self._replace_by(parts, frame.start)

    def absorb(self, newer: GatheredState) -> None:
        """What a newer log says of some of the shards; if it is whole, nothing older was read."""
        for number, shard in newer.shards.items():
            self.shards[number].extend(shard)
        self._columns += newer._columns
        self._forget(newer.forgotten)
        self.size.snapshot += newer.size.snapshot
        self.size.since += newer.size.since

    def begin(self, shards: Mapping[int, ShardState], roots: U64, ids: U64) -> None:
        """What shards that no log has begin with."""
        for number, shard in shards.items():
            self.shards[number].extend(shard)
        self._columns.append((roots, ids))

    def applied(self) -> tuple[U64, U64]:
        """Roots and ids of the segments applied, without what has been forgotten."""
        empty = np.empty(0, dtype=np.uint64)
        applied = Applied()
        for roots, ids in self._columns or [(empty, empty)]:
            applied.add(roots, ids)
        applied.forget(self.forgotten)
        return applied.columns()

    def _add(self, chunk: ChunkReader) -> None:
        for number, stored in chunk.shards(set(self.shards)):
            self.shards[number].extend(stored)
        columns = chunk.columns()
        if len(columns[0]):
            self._columns.append(columns)
        self._forget(chunk.forgotten)
        if chunk.watermark is not None:
            self.watermark = chunk.watermark
        self.size.add(chunk.frame.kind, chunk.size_bytes, chunk.values)

    def _forget(self, frontiers: dict[int, int]) -> None:
        for partition, frontier in frontiers.items():
            self.forgotten[partition] = max(frontier, self.forgotten.get(partition, 0))

    def _replace_by(self, snapshot: GatheredState, first: int) -> None:
        assert snapshot.shards.keys() == self.shards.keys(), "a snapshot has all shards of its log"
        assert first >= self.first, "chunks are taken in order"
        self.shards, self._columns = snapshot.shards, snapshot._columns
        self.size, self.whole, self.first = snapshot.size, True, first
        self.watermark = snapshot.watermark
        self._forget(snapshot.forgotten)
        self._parts = None
