"""When a micro-batch of a query begins, and what is committed before it.

How far a batch has read is known when it is committed, and stored with what it wrote
(`driver.committed`). So a batch is a number and the positions of the one before: one that was not
committed is read anew, with whatever there is by then.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from onyx.base.structs import prepared
from onyx.plugins.protocol import Cursor, Reader
from onyx.spark.driver.request import BucketState, Position
from onyx.spark_query.programs import Query


@prepared
class Reached(msgspec.Struct, frozen=True):
    """What is committed: so many batches, which have read so far."""

    batches: int
    positions: tuple[Position, ...]
    """By the numbers of the partitions."""
    states: tuple[BucketState, ...] = ()
    """What windows hold behind them."""
    due_ms: int | None = None
    """When the next batch begins even if there is nothing to read, since the epoch: a timer fires,
    or a partition becomes idle."""
    ends: bool = False
    """Whether the next batch reads nothing and is the last one, because the job drains."""

    def asks(self, number: int) -> bool:
        """Whether the next batch is about this partition: not when its end is behind it."""
        return self.ends or not self.positions[number].exhausted


def due_ms(
    query: Query, positions: Iterable[Position], states: Iterable[BucketState]
) -> int | None:
    """When a batch begins even if there is nothing to read; None: never."""
    found = [each.due_ms for each in states if each.due_ms is not None]
    if any(each.watermarks != "none" for each in query.plan.exchanges):
        for each in positions:
            timeout_ms = query.job.entry(each.task).idle_timeout
            if timeout_ms is not None and not each.exhausted and not each.idle:
                found.append(each.seen_ms + timeout_ms)
    return min(found, default=None)


class News:
    """Whether there is something for the next batch. Its readers stay open as long as there is
    not, and are closed before the batch: its fragments open their own."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._readers: list[Reader] = []

    def begins(self, reached: Reached) -> bool:
        """Whether the batch behind what is committed begins now.

        Raises:
            Unavailable: an input cannot be read now.
            UserError: it never can.
        """
        due = reached.due_ms is not None and self._query.clock.wall_ms() >= reached.due_ms
        begins = reached.ends or due or self._has_segments(reached)
        if begins:
            self.close()
        return begins

    def close(self) -> None:
        """Let go of the inputs."""
        for reader in self._readers:
            reader.close()
        self._readers.clear()

    def _has_segments(self, reached: Reached) -> bool:
        """Whether a reader of any partition has a segment, or has come to its end."""
        if not self._readers:
            self._open(reached)
        return any(len(reader.read(1)) or reader.exhausted() for reader in self._readers)

    def _open(self, reached: Reached) -> None:
        for each in reached.positions:
            if each.exhausted:
                continue
            plugin = self._query.plugins.kept_input(each.task)
            reader = plugin.open(each.name, Cursor(each.cursor, each.state))
            self._readers.append(reader)
            for _ in range(each.position - each.cursor):
                reader.read(1)
