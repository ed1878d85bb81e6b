"""Live sources without a journal: a message is acked when its tree is complete.

What is in flight is in memory, so the owner of a partition reads it again from there. Whoever takes
the partition over begins with nothing: the source gives again what was not acked, and it gets the
positions from the frontier on anew. Nothing remembers what they were before, because this is
at-least-once at best; exactly-once is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from onyx.errors import Unavailable, contained
from onyx.flow.batch import U64, Segments
from onyx.ids import AllocationVersion
from onyx.plugins.indexed import partition_names
from onyx.plugins.journalled.owning import Unanswered
from onyx.plugins.journalled.reader import JournalReader
from onyx.plugins.protocol import Cursor, PluginContext, Reader
from onyx.plugins.sources.acks import OwedAcks
from onyx.plugins.sources.in_flight import InFlight
from onyx.plugins.sources.portions import messages_of
from onyx.plugins.sources.protocol import LiveSource, OpenSource
from onyx.telemetry.catalog import SOURCE_ACKED, SOURCE_REDELIVERED

logger = logging.getLogger(__name__)

RETRY_S = 1.0


class NativeInput:
    """Reads live sources. Implements `protocol.Input` and `owning.OwningInput`."""

    cooperative = False
    examined = True

    def __init__(
        self, context: PluginContext, partitions: int, opener: OpenSource, examine: bool = False
    ) -> None:
        """
        Args:
            opener: opens a partition.
            examine: look whether every segment can travel.
        """
        self._context = context
        self._names = partition_names(partitions)
        self._opener = opener
        self._examine = examine
        self._open: dict[str, NativePartition] = {}

    def allocate(self, version: AllocationVersion) -> None:
        """Nothing is fenced: two that read at once get different messages."""

    def partitions(self) -> Sequence[str]:
        """Numbers from 0, as text of equal width."""
        return self._names

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """The reader of a partition; beside one that is open, a reader of what is in flight."""
        owned = self._open.get(partition)
        if owned is not None:
            held = owned.in_flight
            return JournalReader(held, cursor.position, held.at, lambda: held.end, {})
        number = self._names.index(partition)
        owned = self._open[partition] = NativePartition(
            self._context,
            partial(self._opener, self._context, number, None),
            cursor.position,
            self._examine,
        )
        return NativeReader(owned, cursor.position, partial(self._give_away, partition))

    def close(self) -> None:
        """Leave the sources."""
        for partition in list(self._open):
            self._give_away(partition)

    def _give_away(self, partition: str) -> None:
        owned = self._open.pop(partition, None)
        if owned is not None:
            owned.close()


class NativePartition:
    """A source that this process reads. Used in the task's thread."""

    def __init__(
        self,
        context: PluginContext,
        opener: Callable[[], LiveSource],
        position: int,
        examine: bool,
    ) -> None:
        self._context = context
        self._opener = opener
        self._examine = examine
        self._source: LiveSource | None = None
        self._acks = OwedAcks(partial(context.metrics.add, SOURCE_ACKED))
        self._next_try_s = 0.0
        self._drained = False
        self.in_flight = InFlight(position)
        self.obstacle = ""
        """Why nothing is taken now. Read by any thread."""

    def receive(self, position: int) -> tuple[int, list[Segments]] | None:
        """What has come, as the portion that has this position, the next one; None: nothing."""
        now_s = self._context.clock.monotonic_s()
        if self._drained or now_s < self._next_try_s:
            return None
        try:
            if self._source is None:
                self._source = self._opener()
            self._acks.settle(self._source)
            portion = self._source.receive(0.0)
        except Unavailable as error:
            self._wait(error)
            return None
        self.obstacle = ""
        if portion is None:
            return None
        _, again, empty = self.in_flight.add(messages_of(portion, self._examine))
        if again:
            self._context.metrics.add(SOURCE_REDELIVERED, again)
        self.ack(empty)
        return self.in_flight.at(position)

    def ack(self, handles: Sequence[Any]) -> None:
        """These messages are processed."""
        self._acks.add(handles)
        if self._source is None or self._context.clock.monotonic_s() < self._next_try_s:
            return
        try:
            self._acks.settle(self._source)
        except Unavailable as error:
            self._wait(error)

    def _wait(self, error: Unavailable) -> None:
        self.obstacle = f"the source cannot be read: {error}"
        self._next_try_s = self._context.clock.monotonic_s() + RETRY_S

    def drain(self) -> None:
        """Take nothing more."""
        self._drained = True

    def exhausted(self) -> bool:
        """Whether the source has ended."""
        return self._source is not None and self._source.exhausted()

    def close(self) -> None:
        """Have the source give to others what is not processed."""
        source, self._source = self._source, None
        if source is None:
            return
        try:
            self._acks.settle(source)
            source.fail(self.in_flight.incomplete())
        except Exception as error:
            logger.debug("a source will find out by itself: %s", error)
        try:
            source.close()
        except BaseException as error:
            logger.warning("a source could not be closed: %s", contained(error))


class NativeReader(Unanswered, JournalReader):
    """The reader that takes what is new, and tells the source what is processed."""

    def __init__(
        self, partition: NativePartition, position: int, closed: Callable[[], None]
    ) -> None:
        """`closed` is called when the partition is given away."""
        held = partition.in_flight
        super().__init__(held, position, partition.receive, lambda: held.end, {})
        self._partition = partition
        self._closed = closed

    @property
    def obstacle(self) -> str:
        """Why nothing new comes. Safe from any thread."""
        return self._partition.obstacle

    def exhausted(self) -> bool:
        """Whether the source has ended, and everything was read."""
        return self.ready() == 0 and self._partition.exhausted()

    def cursor(self, position: int) -> Cursor:
        """The position itself, which is the frontier: all before it is processed."""
        self._partition.ack(self._partition.in_flight.passed(position))
        return super().cursor(position)

    def acked(self, positions: U64) -> None:
        """The trees of these positions are complete (`owning.AckedReader`)."""
        self._partition.ack(self._partition.in_flight.complete(positions))

    def given_up(self, positions: U64) -> None:
        """These positions are not read again: to the source they are processed."""
        self.acked(positions)

    def drain(self) -> int:
        """Take nothing more from the source (`protocol.DrainingReader`)."""
        self._partition.drain()
        return self._partition.in_flight.end

    def close(self) -> None:
        """Give the partition away."""
        self._closed()
