"""Where the segments of a fragment leave it: for tasks behind a shuffle, gathered by the bucket
that has their group.
"""

from __future__ import annotations

import numpy as np

from onyx.flow.batch import U64, Segments, format_of, of_runs, pieces_of, take
from onyx.flow.columns.record_batch import Columns
from onyx.flow.groups.keys import slots_of_shards
from onyx.spark.compiler.plan import Exchange, Plan
from onyx.spark_query.rows import Ending, Row, segments_row
from onyx.state.buckets import bucket_of

GATHERED_MAX = 2_048
"""Segments for one bucket that are gathered before they become a row."""
COUNTS_SHIFT = 24
"""A row's position in the order of an origin: the number of its step, then its own in that step."""


class Outlet:
    """The outlet of one origin: a partition of an input, or one bucket of a windowed task."""

    def __init__(self, plan: Plan, origin: str, buckets: int) -> None:
        self._exchanges = {each.task: each for each in plan.exchanges}
        self._origin = origin
        self._buckets = buckets
        self._gathered: dict[tuple[str, int], dict[str, list[Segments]]] = {}
        """By task and bucket, what each parent has sent there; without a name where the task does
        not keep its parents apart."""
        self._counts: dict[tuple[str, int], int] = {}
        self._shown: set[tuple[str, str, object]] = set()
        """Parents that are kept apart, whose columns all buckets know."""
        self._step = 0
        self._number = 0
        self.mark: int | None = None
        """The watermark of the origin: what is put from now on is not older, as far as known."""
        self.rows: list[Row] = []
        """To be taken."""

    def leads_to(self, task: str) -> bool:
        """Whether the task is behind a shuffle."""
        return task in self._exchanges

    def put(self, task: str, upstream: str, segments: Segments, hashes: U64 | None) -> None:
        """Segments for a task behind a shuffle.

        Args:
            upstream: the task that sends them.
            hashes: of their group keys; None where they are not grouped.
        """
        upstream = upstream if self._exchanges[task].apart else ""
        if hashes is None:
            self._gather(task, bucket_of(task, self._buckets), upstream, segments)
            return
        buckets = slots_of_shards(hashes, self._buckets)
        for bucket in np.unique(buckets).tolist():
            chosen = np.flatnonzero(buckets == bucket)
            self._gather(task, bucket, upstream, take(segments, chosen))
        if upstream and isinstance(segments, Columns):
            self._show(task, upstream, segments)

    def _show(self, task: str, upstream: str, columns: Columns) -> None:
        """Let every bucket know what columns a parent has: one of a join that gets none of its rows
        has nulls for them in rows of the other side."""
        shown = task, upstream, format_of(columns).types(columns)
        if shown not in self._shown:
            self._shown.add(shown)
            nothing = take(columns, np.empty(0, np.intp))
            for bucket in self._buckets_of(self._exchanges[task]):
                self._gather(task, bucket, upstream, nothing)

    def bucket_of(self, task: str, shard: int) -> int:
        """The bucket that has the groups of a shard."""
        if self._exchanges[task].key is None:
            return bucket_of(task, self._buckets)
        return shard % self._buckets

    def put_states(self, task: str, bucket: int, payload: bytes) -> None:
        """States of windows of a task that were folded here."""
        fragment = self._exchanges[task].fragment
        self._add(Row(fragment, task, bucket, self._seq(), self._origin, "states", None, payload))

    def woken(self) -> list[Row]:
        """Rows for tasks that have something to do at the end, though nothing else may come."""
        for exchange in self._exchanges.values():
            if exchange.always:
                for bucket in self._buckets_of(exchange):
                    self._segments(exchange.task, bucket, [], "", None)
        return self.take_rows()

    def advanced(self, mark: int | None, downstream: frozenset[str]) -> None:
        """A step of the origin is over, and its watermark is this now.

        Args:
            downstream: tasks behind a shuffle that the origin may send to.
        """
        risen = mark is not None and mark != self.mark
        self.mark = mark
        if risen:
            for task in sorted(downstream):
                if self._exchanges[task].watermarks == "batches":
                    self._say(self._exchanges[task])
        self._step += 1
        self._number = 0

    def end(
        self,
        downstream: frozenset[str],
        how: Ending = "end",
        payload: bytes = b"",
        newest_ms: int | None = None,
    ) -> None:
        """Nothing more comes from the origin, or not in this micro-batch. Every bucket hears its
        last watermark: one that got few segments of it knows less, and extents fire by the
        watermark before they do at the end.

        Args:
            payload: what every bucket hears besides.
            newest_ms: the greatest event time that the origin has had, when it ends.
        """
        for task, bucket in sorted(self._gathered):
            self._flush(task, bucket)
        # A step of its own: which origin ends first does not depend on how many rows each has made.
        self._step, self._number = self._step + 1, 0
        for task in sorted(downstream):
            exchange = self._exchanges[task]
            if exchange.ends:
                self._say(exchange)
                mark = newest_ms if how == "end" else self.mark
                for bucket in self._buckets_of(exchange):
                    self._add(Row(exchange.fragment, task, bucket, self._seq(), self._origin, how,
                                  mark, payload))  # fmt: skip

    def take_rows(self) -> list[Row]:
        """The rows that were made since the last call."""
        rows, self.rows = self.rows, []
        return rows

    def _gather(self, task: str, bucket: int, upstream: str, segments: Segments) -> None:
        key = task, bucket
        self._gathered.setdefault(key, {}).setdefault(upstream, []).append(segments)
        self._counts[key] = self._counts.get(key, 0) + len(segments)
        if self._counts[key] >= GATHERED_MAX:
            self._flush(task, bucket)

    def _say(self, exchange: Exchange) -> None:
        """Let every bucket know the watermark, behind all that went there before."""
        for bucket in self._buckets_of(exchange):
            if (exchange.task, bucket) in self._gathered:
                self._flush(exchange.task, bucket)
            else:
                self._segments(exchange.task, bucket, [], "", self.mark)

    def _flush(self, task: str, bucket: int) -> None:
        self._counts.pop((task, bucket), None)
        gathered = self._gathered.pop((task, bucket), {})
        batches = [
            (upstream, each) for upstream, parts in gathered.items() for each in _together(parts)
        ]
        # Only behind the last of them event time is where it is: what comes before is not late.
        for left, (upstream, segments) in zip(reversed(range(len(batches))), batches, strict=True):
            self._segments(task, bucket, segments, upstream, None if left else self.mark)

    def _segments(
        self, task: str, bucket: int, segments: Segments, upstream: str, mark: int | None
    ) -> None:
        fragment, seq = self._exchanges[task].fragment, self._seq()
        self._add(segments_row(fragment, task, bucket, seq, self._origin, mark, segments, upstream))

    def _add(self, row: Row) -> None:
        self.rows.append(row)

    def _seq(self) -> int:
        self._number += 1
        return (self._step << COUNTS_SHIFT) + self._number

    def _buckets_of(self, exchange: Exchange) -> range:
        if exchange.key is None:
            bucket = bucket_of(exchange.task, self._buckets)
            return range(bucket, bucket + 1)
        return range(self._buckets)


def _together(parts: list[Segments]) -> list[Segments]:
    """What was gathered, as few batches, in its order."""
    if len(set(map(format_of, parts))) > 1:
        return parts
    return [segments for _, segments in pieces_of(of_runs(parts))]
