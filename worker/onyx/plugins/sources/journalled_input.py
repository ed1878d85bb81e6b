"""Inputs of live sources by way of a journal: nothing is acked before it is durable.

A worker may die between the journal and the ack. Then the source gives a message again, to the same
partition, and its id says that the journal has it: it is acked, and not taken. So a message is in
the journal once, if the source has ids or goes on behind a cursor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from onyx.base.seams import Clock
from onyx.errors import OnyxError, Unavailable, contained
from onyx.flow.batch import U64
from onyx.journal.journal import Journal
from onyx.journal.logs import Content, RememberedRequest
from onyx.plugins.journalled.id_memory import IdMemory, remembered_of
from onyx.plugins.journalled.partitions import JournalledPartitions
from onyx.plugins.protocol import Behind, Cursor, Input, PluginContext, Reader, Unanswered
from onyx.plugins.sources.messages import Owed, SourceMessages, messages_of
from onyx.plugins.sources.options import JournalledOptions
from onyx.plugins.sources.protocol import LiveSource, OpenSource, pending_of
from onyx.telemetry.catalog import SOURCE_ACKED, SOURCE_REDELIVERED, Metric
from onyx.telemetry.interface import TaskMetrics

logger = logging.getLogger(__name__)


class JournalledInput(Input):
    """Reads live sources by way of a journal. Implements `protocol.OwningInput`."""

    cooperative = False
    wakes = True
    examined = True

    def __init__(
        self,
        context: PluginContext,
        options: JournalledOptions,
        partitions: int,
        opener: OpenSource,
        examine: bool = False,
    ) -> None:
        """
        Args:
            opener: opens a partition.
            examine: look whether every segment can travel.
        """

        def feed(name: str, journal: Journal) -> SourceFeed:
            number = self._partitions.names.index(name)
            return SourceFeed(
                lambda: opener(context, number, journal.cursor),
                context.clock,
                journal.restored,
                options.remember_ids,
                1_000 * options.remember_seconds,
                examine,
            )

        self._partitions = JournalledPartitions(
            context, partitions, options.journal_bytes_max, feed, options.retention
        )
        self.allocate = self._partitions.allocate

    def partitions(self) -> Sequence[str]:
        """Numbers from 0, as text of equal width."""
        return self._partitions.names

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """Takes the journal over, and goes on with the source."""
        return self._partitions.open(partition, cursor)

    def behind(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        """What is in the journals and not processed, and what the queue says to have."""
        return self._partitions.behind(cursors)

    def close(self) -> None:
        """Leave the sources."""
        self._partitions.close()


class _Entry(msgspec.Struct):
    """A message that is in the journal."""

    first: int
    count: int
    wall_ms: int
    digest: bytes = b""
    left: int = 0
    outcomes: None = None


class SourceFeed(Unanswered):
    """Implements `journalled.partition.Feed`. The source is used by the writer alone."""

    judges = False

    def __init__(
        self,
        opener: Callable[[], LiveSource],
        clock: Clock,
        restored: Iterable[RememberedRequest] = (),
        remember_ids_max: int = 100_000,
        remember_ms: int = 3_600_000,
        examine: bool = False,
    ) -> None:
        """
        Args:
            opener: opens the source; called by the writer.
            restored: messages of before, in the order of their positions. Their age counts from
                now on: the source may not have been asked for hours.
            examine: look whether every segment can travel.
        """
        self._opener = opener
        self._clock = clock
        self._examine = examine
        self._source: LiveSource | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        """Guards what follows."""
        self._known = IdMemory[_Entry](clock, remember_ids_max, remember_ms, clock.wall_ms())
        self._acked = 0
        self._redelivered = 0
        self._acks = Owed(self._count_acked)
        self._cursor: Any = None
        """The last one that was appended."""
        self._taken: SourceMessages | None = None
        """What the writer appends now."""
        for each in restored:
            self._known.add(each.id, _Entry(each.first, each.count, each.wall_ms))

    def take(self, first: int, wait_s: float) -> Content | None:
        """What goes into the next chunk; None: nothing that is new came within `wait_s`."""
        if self._closed.is_set():
            return None
        if self._source is None:
            self._source = self._opener()
        source = self._source
        self._acks.settle(source)
        portion = source.receive(wait_s)
        if portion is None:
            return None
        if self._closed.is_set():
            source.fail(portion.handles, 0.0)
            return None
        messages = self._new(messages_of(portion, self._examine))
        if not messages.segments and messages.cursor in (None, self._cursor):
            self._acks.add(messages.handles)
            self._acks.settle(source)
            return None
        self._taken = messages
        return Content(messages.runs, self._remember(messages, first), messages.cursor)

    def _new(self, messages: SourceMessages) -> SourceMessages:
        """Messages that the journal does not have; the others are acked soon."""
        seen: set[str] = set()
        known = np.zeros(len(messages.counts), dtype=np.bool_)
        with self._lock:
            for index, id in enumerate(messages.ids):
                known[index] = id in self._known or id in seen
                seen.add(id)
            again = int(np.count_nonzero(known))
            self._redelivered += again
        if not again:
            return messages
        if messages.handles:
            self._acks.add([messages.handles[index] for index in np.flatnonzero(known).tolist()])
        return messages.without(known)

    def _remember(self, messages: SourceMessages, first: int) -> tuple[RememberedRequest, ...]:
        wall_ms, found = self._clock.wall_ms(), []
        for id, count in zip(messages.ids, messages.counts, strict=False):
            found.append(RememberedRequest(id, b"", first, count, wall_ms))
            first += count
        return tuple(found)

    @property
    def unread(self) -> int | None:
        """Messages that the source says to have; None: it does not say."""
        return pending_of(self._source)

    def judged(self, wait_s: float) -> None:
        """Nobody is answered."""

    def appended(self, content: Content) -> None:
        """It is durable: the source may hear of it. If it does not now, it will before it is asked
        for more."""
        assert self._taken is not None
        assert self._source is not None
        with self._lock:
            for each in content.requests:
                self._known.add(each.id, _Entry(each.first, each.count, each.wall_ms))
            self._known.forget()
        self._acks.add(self._taken.handles)
        self._cursor, self._taken = self._taken.cursor, None
        try:
            self._acks.settle(self._source)
        except Unavailable as error:
            logger.debug("acks have to wait: %s", error)

    def hold(self, reason: str) -> None:
        """Nobody waits: what is not taken stays in the queue."""

    def acked(self, positions: U64) -> None:
        """Nobody waits for that."""

    def passed(self, position: int) -> None:
        """Nobody waits for that."""

    def remembered(self) -> list[RememberedRequest]:
        """The ids that the journal is to know further on."""
        with self._lock:
            known = self._known.known()
        return remembered_of(known)

    def ended(self) -> bool:
        """Whether the source has."""
        return self._source is not None and self._source.exhausted() and not len(self._acks)

    def report(self, metrics: TaskMetrics) -> None:
        """Count acks, and messages that came again."""
        with self._lock:
            acked, self._acked = self._acked, 0
            redelivered, self._redelivered = self._redelivered, 0
        if acked:
            metrics.add(SOURCE_ACKED, acked)
        if redelivered:
            metrics.add(SOURCE_REDELIVERED, redelivered)

    def refuse(self) -> None:
        """Take nothing any more."""
        self.close(None)

    def close(self, error: OnyxError | None) -> None:
        """Take nothing more. The writer closes the source."""
        self._closed.set()

    def release(self) -> None:
        """Close the source."""
        source, self._source = self._source, None
        if source is None:
            return
        try:
            self._acks.settle(source)
        except Exception as error:
            logger.debug("acks are left to who comes next: %s", error)
        try:
            source.close()
        except BaseException as error:
            logger.warning("a source could not be closed: %s", contained(error))

    def _count_acked(self, metric: Metric, count: int) -> None:
        with self._lock:
            self._acked += count
