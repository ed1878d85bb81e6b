"""The records of a join: rows as they have come, and how far event time is.

A chunk has a few rows of each shard, so a record of rows has no schema: a record before it says
that of its side and shard, once in a log and once in a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onyx.codec.columns import encode_schema
from onyx.codec.pieces import cutter
from onyx.flow.arrays import Indices, Mask
from onyx.keystate.groups import slices_of
from onyx.keystate.names import JOINED
from onyx.keystate.records import (
    JoinRows,
    JoinSchema,
    Record,
    Records,
    WatermarkReached,
    append,
)
from onyx.operators.stream_join.keyed_rows import KeyedRows, together
from onyx.operators.stream_join.spans import NO_WATERMARK, Side, Times

ROWS_AT_ONCE = 100_000
"""Rows of one record."""


class Chronicle:
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
