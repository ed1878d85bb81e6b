"""The state of shards as it is read: of one as bytes that are decoded when asked for, and of some
out of the chunks of a log, where changes add up and a whole snapshot replaces all.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from msgspec import field

from onyx.base.runs import U64, Numbers
from onyx.codec.values import decode_records, decode_values
from onyx.keystate.records import Record
from onyx.ledger.applied import Applied
from onyx.state.chunks import (
    ChunkReader,
    EmittedRun,
    ShardChange,
    StateChunkKind,
    StoredShard,
    Watermark,
    decode_emitted,
    sections_of,
)
from onyx.state.local.scratch import Kept, bytes_of

TOGETHER_BYTES_MAX = 65_536
"""The size of records that are decoded at once, unless one chunk has more."""


class ShardState(msgspec.Struct):
    """What is known of one shard."""

    settled: int = 0
    """Emission frontier: the trees of all positions below are complete."""
    closed: bool = False
    """Whether it has fired for the last time."""
    _records: list[Kept] = field(default_factory=list)
    _emitted: list[bytes] = field(default_factory=list)
    _keys: list[Kept] = field(default_factory=list)

    def records(self) -> Iterator[list[Record]]:
        """Lists of records for `TaskWindows.restore`, in order; decoded as they are asked for.
        Those of small chunks come together, because many at once are restored faster."""
        found: list[Record] = []
        size_bytes = 0
        for part in map(bytes_of, self._records):
            if found and size_bytes + len(part) > TOGETHER_BYTES_MAX:
                yield found
                found, size_bytes = [], 0
            found += _decoded(part)
            size_bytes += len(part)
        if found:
            yield found

    @classmethod
    def of(cls, change: ShardChange) -> ShardState:
        """A shard that begins with this.

        Raises:
            SegmentError: a value has no encoding.
        """
        said = next(sections_of([(0, change)]))
        found = cls()
        found.extend(
            StoredShard(change.settled, change.closed, said.records, said.emitted, said.keys)
        )
        return found

    @property
    def emitted(self) -> list[EmittedRun]:
        """What is not settled, in the order of positions."""
        runs = chain.from_iterable(map(decode_emitted, self._emitted))
        left = (each.behind(self.settled) for each in runs)
        return [each for each in left if each is not None]

    def unique_keys(self) -> Iterator[list[Any]]:
        """Lists of values of the `uniquenessKey`, oldest first; decoded as they are asked for."""
        return map(decode_values, map(bytes_of, self._keys))

    def change(self) -> ShardChange:
        """All of it, for a snapshot."""
        records = [record for part in self.records() for record in part]
        keys = list(chain.from_iterable(self.unique_keys()))
        return ShardChange(records, self.emitted, self.settled, self.closed, keys)

    def extend(self, newer: StoredShard | ShardState) -> None:
        """With what came after."""
        self.settled = max(self.settled, newer.settled)
        self.closed = self.closed or newer.closed
        if isinstance(newer, ShardState):
            self._records += newer._records
            self._emitted += newer._emitted
            self._keys += newer._keys
            return
        if newer.records:
            self._records.append(newer.records)
        if newer.emitted:
            self._emitted.append(newer.emitted)
        if newer.keys:
            self._keys.append(newer.keys)


def _decoded(part: bytes) -> list[Record]:
    """The records, without a search for garbage among what is being made, which takes as long."""
    if not gc.isenabled():
        return decode_records(part)
    gc.disable()
    try:
        return decode_records(part)
    finally:
        gc.enable()


CHUNK_COST_BYTES = 32_768
"""What it costs to read a chunk, however small."""
VALUE_COST_BYTES = 128
"""What it costs to restore a record, or a value in one, however small: one or two microseconds, in
which as many bytes of large values are restored (`python -m benchmarks.bench_restore`)."""


class RecoveryCost(msgspec.Struct):
    """How long it takes to know the state, as bytes that take as long: what is read, and what is
    restored one by one. Small values take less to read than to restore."""

    snapshot: int = 0
    """The time for snapshots."""
    since: int = 0
    """The time for changes since."""
    values: int = 0
    """Values that are restored."""

    def add(self, kind: StateChunkKind, size_bytes: int, values: int) -> None:
        """A chunk of so many bytes and values has to be read as well."""
        cost = size_bytes + VALUE_COST_BYTES * values
        self.values += values
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
    size: RecoveryCost = field(default_factory=RecoveryCost)
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
        self.size.values += newer.size.values

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
