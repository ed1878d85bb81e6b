"""The records of a join: rows as they have come, and how far event time is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from onyx.codec import columns as columns_codec
from onyx.flow.arrays import Indices, Mask
from onyx.flow.columns.record_batch import Columns
from onyx.joins.streams.keyed_rows import KeyedRows, together
from onyx.joins.streams.spans import NO_WATERMARK, Side, Times
from onyx.joins.streams.stored import JOINED
from onyx.windows.groups import slices_of
from onyx.windows.records import JoinRows, Record, Records, WatermarkReached, append

ROWS_AT_ONCE = 100_000
"""Rows of one record."""


class Chronicle:
    """What the state log does not have yet."""

    def __init__(self, watermarks: Times) -> None:
        """`watermarks`: by shard, as they are at any time."""
        self._watermarks = watermarks
        self._written = watermarks.copy()
        self._news: list[tuple[Side, KeyedRows]] = []

    def added(self, side: Side, rows: KeyedRows) -> None:
        """A side has got rows."""
        self._news.append((side, rows))

    def take_changes(self, known: Iterable[int]) -> Records:
        """What has changed since the last call, by shard."""
        records: Records = {}
        news, self._news = self._news, []
        for side, rows in _alike(news):
            order, runs = _by_shard(rows.shards)
            segments = rows.chosen(order)
            schema = columns_codec.encode_schema(segments.schema)
            for shard, (first, end) in runs.items():
                append(records, shard, _record(side, segments.slice(first, end - first), schema))
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
        split: list[tuple[Side, KeyedRows, bytes, dict[int, tuple[int, int]]]] = []

        def of_shard(shard: int) -> list[Record]:
            if not split:
                for side, rows, there in kept:
                    rows = rows.take(np.flatnonzero(there))
                    order, runs = _by_shard(rows.shards)
                    schema = columns_codec.encode_schema(rows.segments.schema)
                    split.append((side, rows.take(order), schema, runs))
            found: list[Record] = []
            for side, rows, schema, runs in split:
                first, end = runs.get(shard, (0, 0))
                for start in range(first, end, ROWS_AT_ONCE):
                    some = np.arange(start, min(end, start + ROWS_AT_ONCE))
                    found.append(_record(side, rows.chosen(some), schema))
            if watermarks[shard] != NO_WATERMARK:
                found.append(_reached(watermarks[shard]))
            return found

        return of_shard


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


def _record(side: Side, rows: pa.RecordBatch, schema: bytes) -> JoinRows:
    return JoinRows(JOINED, side, columns_codec.encode(Columns(rows)), schema)


def _reached(watermark: np.int64) -> WatermarkReached:
    return WatermarkReached(JOINED, int(watermark))


def rows_in(record: JoinRows) -> pa.RecordBatch:
    """The rows of a record. Raises SegmentError: its bytes are damaged."""
    schema = columns_codec.decode_schema(record.schema)
    return columns_codec.decode(record.rows, schema).record_batch
