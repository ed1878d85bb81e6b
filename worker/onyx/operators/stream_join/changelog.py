"""The records of a join, written and read back: rows as they have come, and how far event time is.

A chunk has a few rows of each shard, so a record of rows has no schema: a record before it says
that of its side and shard, once in a log and once in a snapshot.

A log has as many records as there were chunks, shards and sides, mostly of a few rows. So rows that
are restored are gathered, and looked at when there are many. What is waiting is counted as it
comes: nothing here costs more for a record because others wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onyx.codec.columns import decode_schema, encode_schema
from onyx.codec.pieces import cutter, put_together
from onyx.errors import SegmentError
from onyx.flow.arrays import Indices, Mask
from onyx.keystate.groups import slices_of
from onyx.keystate.records import (
    JOINED,
    JoinRows,
    JoinSchema,
    Record,
    Records,
    WatermarkReached,
    append,
)
from onyx.operators.stream_join.keyed_rows import KeyedRows, together
from onyx.operators.stream_join.spans import LEFT, NO_WATERMARK, RIGHT, Side, Times

ROWS_AT_ONCE = 100_000
"""Rows of one record."""


RESTORED_AT_ONCE = 65_536
"""Rows of a side that are put together before they are stored again."""
BYTES_AT_ONCE = 1 << 28
"""Bytes of a side that are: a column holds 2 GiB."""
Store = Callable[[Side, pa.RecordBatch, Indices], None]
"""Takes rows of a side, each with its shard."""
Saw = Callable[[Side, pa.Schema], None]
"""Hears of a schema of a side."""


class ChangelogWriter:
    """What the state log does not have yet."""

    def __init__(self, watermarks: Times) -> None:
        """`watermarks`: by shard, as they are at any time."""
        self._watermarks = watermarks
        self._written = watermarks.copy()
        self._news: list[tuple[Side, KeyedRows]] = []
        self._schemas: dict[tuple[Side, int], pa.Schema] = {}
        """The last schema that the log has of each side and shard."""

    def added(self, side: Side, rows: KeyedRows) -> None:
        """A side has got rows."""
        self._news.append((side, rows))

    def take_changes(self, known: Iterable[int]) -> Records:
        """What has changed since the last call, by shard."""
        records: Records = {}
        news, self._news = self._news, []
        for side, rows in _alike(news):
            order, runs = _by_shard(rows.shards)
            cut, schema = cutter(rows.chosen(order)), rows.segments.schema
            for shard, (first, end) in runs.items():
                if self._schemas.get((side, shard)) != schema:
                    self._schemas[side, shard] = schema
                    append(records, shard, JoinSchema(JOINED, side, encode_schema(schema)))
                append(records, shard, JoinRows(JOINED, side, end - first, cut(first, end)))
        # Behind the rows: a watermark says of all before it which are gone.
        risen = self._watermarks != self._written
        assert (self._watermarks >= self._written).all(), "event time only rises"
        for shard in known:
            if risen[shard]:
                append(records, shard, _reached(self._watermarks[shard]))
        self._written = self._watermarks.copy()
        return records

    def freeze(
        self,
        parts: Sequence[tuple[Side, KeyedRows]],
        gone: Mapping[Side, Callable[[KeyedRows], Mask]],
    ) -> Callable[[int], list[Record]]:
        """What gives all rows of a shard, and its watermark, as they are now."""
        watermarks = self._watermarks.copy()
        kept = [(side, rows, ~gone[side](rows)) for side, rows in parts]
        self._schemas.clear()  # what comes is behind a snapshot
        split: list[_Split] = []

        def of_shard(shard: int) -> list[Record]:
            if not split:
                split.extend(_Split.of(side, rows, there) for side, rows, there in kept)
            found: list[Record] = []
            for each in split:
                found += each.records(shard)
            if watermarks[shard] != NO_WATERMARK:
                found.append(_reached(watermarks[shard]))
            return found

        return of_shard


class _Split(NamedTuple):
    """A part of a side, by shards."""

    side: Side
    rows: KeyedRows
    """In the order of their shards."""
    schema: bytes
    runs: dict[int, tuple[int, int]]

    @staticmethod
    def of(side: Side, rows: KeyedRows, there: Mask) -> _Split:
        """The rows of a part that are still there."""
        rows = rows.take(np.flatnonzero(there))
        order, runs = _by_shard(rows.shards)
        return _Split(side, rows.take(order), encode_schema(rows.segments.schema), runs)

    def records(self, shard: int) -> Iterator[Record]:
        """The rows of a shard, if there are any."""
        first, end = self.runs.get(shard, (0, 0))
        if first < end:
            yield JoinSchema(JOINED, self.side, self.schema)
        for start in range(first, end, ROWS_AT_ONCE):
            count = min(end - start, ROWS_AT_ONCE)
            rows = self.rows.chosen(np.arange(start, start + count))
            yield JoinRows(JOINED, self.side, count, cutter(rows)(0, count))


def _alike(news: Sequence[tuple[Side, KeyedRows]]) -> Iterator[tuple[Side, KeyedRows]]:
    """Rows of a side that have one form together."""
    found: dict[tuple[Side, Hashable], list[KeyedRows]] = {}
    for side, rows in news:
        found.setdefault((side, rows.form), []).append(rows)
    for (side, _), parts in found.items():
        yield side, together(parts)


def _by_shard(shards: Indices) -> tuple[Indices, dict[int, tuple[int, int]]]:
    """The order of rows by their shards, and for each shard its first row there and the one behind
    its last."""
    small = shards.astype(np.int16)
    order = np.argsort(small, kind="stable")  # two bytes are sorted without comparing
    runs = slices_of(small[order]) if len(small) else {}
    return order, {shard: (run.start, run.stop) for shard, run in runs.items()}


def _reached(watermark: np.int64) -> WatermarkReached:
    return WatermarkReached(JOINED, int(watermark))


class ChangelogReader:
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
            assert rows.num_rows == len(shards), "each row has a shard"
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
