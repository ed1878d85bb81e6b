"""Live sources without a journal: a message is acked when its tree is complete.

What is in flight is in memory, so the owner of a partition reads it again from there. Whoever takes
the partition over begins with nothing: the source gives again what was not acked, and it gets the
positions from the frontier on anew. Nothing remembers what they were before, because this is
at-least-once at best; exactly-once is refused.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from onyx.errors import Unavailable, contained
from onyx.flow.batch import U64, Segments
from onyx.ids import AllocationVersion
from onyx.ledger.outcomes import outcomes_of
from onyx.ledger.returns import OUTCOMES, Parts
from onyx.plugins.bases import partition_names
from onyx.plugins.journalled.reader import JournalReader
from onyx.plugins.protocol import Cursor, Input, PluginContext, Reader, Unanswered
from onyx.plugins.sources.in_flight import Done, InFlight
from onyx.plugins.sources.owed import Owed
from onyx.plugins.sources.portions import messages_of
from onyx.plugins.sources.protocol import LiveSource, OpenSource, Portion
from onyx.telemetry.catalog import SOURCE_REDELIVERED

logger = logging.getLogger(__name__)
PART_OF_LEASE = 6
END_TIMEOUT_S = 2.0
RETRY_S = 1.0
LOGGED_EVERY_S = 60.0


class NativeInput(Input):
    """Reads live sources. Implements `owning.OwningInput`."""

    cooperative = False
    examined = True

    def __init__(
        self,
        context: PluginContext,
        partitions: int,
        opener: OpenSource,
        examine: bool = False,
        returns_failures: bool = False,
    ) -> None:
        """
        Args:
            opener: opens a partition.
            examine: look whether every segment can travel.
            returns_failures: the source hears of messages that have failed.
        """
        self._context = context
        self._names = partition_names(partitions)
        self._opener = opener
        self._examine = examine
        self._returns_failures = returns_failures
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
            self._returns_failures,
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
    """A source that this process reads. Used in the task's thread, but for `keep`."""

    def __init__(
        self,
        context: PluginContext,
        opener: Callable[[], LiveSource],
        position: int,
        examine: bool,
        returns_failures: bool,
    ) -> None:
        """`returns_failures`: the source hears of messages that have failed."""
        self._context = context
        self._opener = opener
        self._examine = examine
        self._returns_failures = returns_failures
        self._source: LiveSource | None = None
        self._owed = Owed(context.metrics.add)
        self._next_try_s = 0.0
        self._logged_s = -math.inf
        self._unlogged = 0
        """Messages that have failed for good since then."""
        self._drained = False
        self._lock = threading.Lock()
        """Guards the source and what is in flight."""
        self._lease: _Lease | None = None
        self._failed: Exception | None = None
        """What a call of `working` has raised."""
        self.in_flight = InFlight(position)
        self.obstacle = ""
        """Why nothing is taken now. Read by any thread."""

    def receive(self, position: int) -> tuple[int, list[Segments]] | None:
        """What has come, as the portion that has this position, the next one; None: nothing."""
        now_s = self._context.clock.monotonic_s()
        if self._failed is not None:
            raise self._failed
        if now_s < self._next_try_s:
            return None
        if self._drained:
            with self._lock:
                self._settle()
            return None
        with self._lock:
            try:
                if self._source is None:
                    self._source = self._opener()
                self._owed.settle(self._source)
                portion = self._source.receive(0.0)
            except Unavailable as error:
                self._wait(error)
                return None
            self.obstacle = ""
            self._follow_lease(self._source.lease_s)
            if portion is None:
                return None
            self._take(portion, now_s)
            return self.in_flight.at(position)

    def _take(self, portion: Portion, now_s: float) -> None:
        messages = messages_of(portion, self._examine)
        if portion.refused and messages.handles:
            self._refuse([(messages.handles[at], why) for at, why in portion.refused.items()])
            refused = np.zeros(len(messages.counts), dtype=np.bool_)
            refused[list(portion.refused)] = True
            messages = messages.without(refused)
        _, again, empty = self.in_flight.add(messages, now_s)
        if again:
            self._context.metrics.add(SOURCE_REDELIVERED, again)
        self._owed.add(empty)
        self._settle()

    def complete(self, positions: U64) -> None:
        """The trees of these positions are complete."""
        with self._lock:
            self._tell(self.in_flight.complete(positions))

    def passed(self, position: int) -> None:
        """All before this position is complete."""
        with self._lock:
            self._tell(self.in_flight.passed(position))

    def has_failed(self, position: int, why: str) -> None:
        """The segment at this position has failed for good."""
        if self._returns_failures:
            with self._lock:
                self.in_flight.has_failed(position, why)

    def given_up(self, positions: U64) -> None:
        """These positions are not read again from here: the source gives them again, if it hears of
        failures; else they are as good as processed."""
        with self._lock:
            if not self._returns_failures:
                self._tell(self.in_flight.complete(positions))
                return
            for handle, deliveries in self.in_flight.given_back(positions):
                rest_s = self._context.retry_delay.delay_s(max(0, deliveries - 1))
                self._owed.give_back(handle, rest_s)
            self._settle()

    def _tell(self, done: Done) -> None:
        self._owed.add(done.processed)
        self._refuse(done.refused)
        self._settle()

    def _refuse(self, failed: list[tuple[Any, str]]) -> None:
        for handle, why in failed:
            self._owed.refuse(handle, why)
        self._unlogged += len(failed)
        now_s = self._context.clock.monotonic_s()
        if failed and now_s - self._logged_s >= LOGGED_EVERY_S:
            logger.warning(
                "%s: %d messages have failed for good, as their source hears: %s",
                self._context.where, self._unlogged, failed[0][1],
            )  # fmt: skip
            self._unlogged, self._logged_s = 0, now_s

    def _settle(self) -> None:
        if self._source is None or self._context.clock.monotonic_s() < self._next_try_s:
            return
        try:
            self._owed.settle(self._source)
        except Unavailable as error:
            self._wait(error)

    def _wait(self, error: Unavailable) -> None:
        self.obstacle = f"the source cannot be read: {error}"
        self._next_try_s = self._context.clock.monotonic_s() + RETRY_S

    def _follow_lease(self, lease_s: float | None) -> None:
        if lease_s is None:
            return
        if self._lease is None:
            self._lease = _Lease(self.keep, f"onyx-lease-{self._context.task}")
        self._lease.follow(lease_s)

    def keep(self, lease_s: float) -> None:
        """Tell the source what is still worked on, as far as it has not heard of that for a third
        of the lease. Safe from any thread."""
        with self._lock:
            now_s = self._context.clock.monotonic_s()
            before_s = now_s - lease_s / 3
            if self._source is None or not (handles := self.in_flight.incomplete(before_s)):
                return
            try:
                self._source.working(handles)
            except Unavailable as error:
                logger.debug("a source did not hear what is worked on: %s", error)
            except BaseException as error:
                self._failed = contained(error)
            else:
                self.in_flight.heard(before_s, now_s)

    def drain(self) -> None:
        """Take nothing more."""
        self._drained = True

    def exhausted(self) -> bool:
        """Whether the source has ended, and has heard of all."""
        with self._lock:
            source = self._source
            return source is not None and not len(self._owed) and source.exhausted()

    def close(self) -> None:
        """Have the source give to others what is not processed."""
        if self._lease is not None:
            self._lease.end()
        with self._lock:
            source, self._source = self._source, None
            if source is not None:
                self._leave(source)

    def _leave(self, source: LiveSource) -> None:
        try:
            self._owed.settle(source)
            source.fail(self.in_flight.incomplete(), 0.0)
        except Exception as error:
            logger.debug("a source will find out by itself: %s", error)
        try:
            source.close()
        except BaseException as error:
            logger.warning("a source could not be closed: %s", contained(error))


class NativeReader(Unanswered, JournalReader):
    """The reader that takes what is new, and whose source hears what became of it."""

    def __init__(
        self, partition: NativePartition, position: int, closed: Callable[[], None]
    ) -> None:
        """`closed` is called when the partition is given away."""
        held = partition.in_flight
        super().__init__(held, position, partition.receive, lambda: held.end, {})
        self._partition = partition
        self._closed = closed

    def obstacle(self) -> str:
        """Why nothing new comes. Safe from any thread."""
        return self._partition.obstacle

    def exhausted(self) -> bool:
        """Whether the source has ended, and everything was read."""
        return self.ready() == 0 and self._partition.exhausted()

    def cursor(self, position: int) -> Cursor:
        """The position itself, which is the frontier: all before it is processed."""
        self._partition.passed(position)
        return super().cursor(position)

    def acked(self, positions: U64) -> None:
        """The trees of these positions are complete (`owning.AckedReader`)."""
        self._partition.complete(positions)

    def returned(self, position: int, parts: Parts) -> None:
        """What is said of the tree of a position, before it is complete."""
        outcomes = outcomes_of(parts.get(OUTCOMES))
        if outcomes.final_failures:
            self._partition.has_failed(position, outcomes.first_failure)

    def given_up(self, positions: U64) -> None:
        """These positions are not read again."""
        self._partition.given_up(positions)

    def drain(self) -> int:
        """Take nothing more from the source (`protocol.DrainingReader`)."""
        self._partition.drain()
        return self._partition.in_flight.end

    def close(self) -> None:
        """Give the partition away."""
        self._closed()


class _Lease:
    """A thread that has the source hear some times within each lease what is worked on."""

    def __init__(self, renew: Callable[[float], None], name: str) -> None:
        """`renew` is called on the thread, with how long a lease is in seconds."""
        self._renew = renew
        self._lease_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def follow(self, lease_s: float) -> None:
        """A lease is so long from now on."""
        self._lease_s = lease_s
        if not self._thread.is_alive() and not self._ended.is_set():
            self._thread.start()

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(END_TIMEOUT_S)

    def _run(self) -> None:
        while not self._ended.wait(self._lease_s / PART_OF_LEASE):
            self._renew(self._lease_s)
