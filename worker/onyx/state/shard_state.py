"""The state of one shard as it was read: kept as bytes, decoded when it is asked for."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec
from msgspec import field

from onyx.codec.records import decode_records
from onyx.codec.values import decode_values
from onyx.keystate.records import Record
from onyx.state.chunks import EmittedRun, ShardChange, StoredShard, decode_emitted, sections_of
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
