"""The rows of a join as its records give them back.

A log has as many records as there were chunks, shards and sides, mostly of a few rows. So rows are
gathered, and looked at when there are many. What is waiting is counted as it comes: nothing here
costs more for a record because others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from onyx.codec.columns import decode_schema
from onyx.codec.pieces import put_together
from onyx.errors import SegmentError
from onyx.flow.arrays import Indices
from onyx.keystate.records import JoinRows, JoinSchema
from onyx.operators.stream_join.spans import LEFT, RIGHT, Side

RESTORED_AT_ONCE = 65_536
"""Rows of a side that are put together before they are stored again."""
BYTES_AT_ONCE = 1 << 28
"""Bytes of a side that are: a column holds 2 GiB."""
Store = Callable[[Side, pa.RecordBatch, Indices], None]
"""Takes rows of a side, each with its shard."""
Saw = Callable[[Side, pa.Schema], None]
"""Hears of a schema of a side."""


class Restoring:
    """Both sides. Not thread-safe."""

    def __init__(self, store: Store, saw: Saw) -> None:
        self._sides = {side: _Side(side, store) for side in (LEFT, RIGHT)}
        self._saw = saw

    def apply(self, shard: int, record: JoinSchema | JoinRows) -> None:
        """Take the next record of a shard.

        Raises:
            SegmentError: a record says otherwise than it should.
        """
        its = self._sides[LEFT if record.side == LEFT else RIGHT]
        if isinstance(record, JoinRows):
            its.add(shard, record)
            return
        schema = decode_schema(record.schema)
        its.schemas[shard] = schema
        self._saw(its.side, schema)

    def forget(self, shard: int) -> None:
        """All rows of a shard go."""
        for its in self._sides.values():
            its.forget(shard)

    def finish(self) -> None:
        """No more comes."""
        for its in self._sides.values():
            its.store_all()
            its.schemas.clear()


class _Side:
    def __init__(self, side: Side, store: Store) -> None:
        self.side: Side = side
        self.schemas: dict[int, pa.Schema] = {}
        """By shard, as the records said last."""
        self._store = store
        self._waiting: dict[int, list[tuple[pa.Schema, JoinRows]]] = {}
        """By shard, in order."""
        self._rows = self._bytes = 0
        """How many wait, and a little more where a shard was forgotten."""

    def add(self, shard: int, record: JoinRows) -> None:
        if shard not in self.schemas:
            raise SegmentError(f"rows of shard {shard} of a join come before their schema")
        self._waiting.setdefault(shard, []).append((self.schemas[shard], record))
        self._rows += record.count
        self._bytes += sum(map(len, record.piece))
        if self._rows >= RESTORED_AT_ONCE or self._bytes >= BYTES_AT_ONCE:
            self.store_all()

    def forget(self, shard: int) -> None:
        self._waiting.pop(shard, None)

    def store_all(self) -> None:
        for schema, records, shards in self._alike():
            rows = put_together(schema, [each.piece for each in records], len(shards))
            self._store(self.side, rows, shards)
        self._waiting, self._rows, self._bytes = {}, 0, 0

    def _alike(self) -> Iterator[tuple[pa.Schema, list[JoinRows], Indices]]:
        """What waits, together where the schema is the same, with the shards of the rows."""
        alike: dict[pa.Schema, list[tuple[int, JoinRows]]] = {}
        for shard, records in self._waiting.items():
            for schema, record in records:
                alike.setdefault(schema, []).append((shard, record))
        for schema, some in alike.items():
            shards = np.repeat([shard for shard, _ in some], [each.count for _, each in some])
            yield schema, [each for _, each in some], shards
