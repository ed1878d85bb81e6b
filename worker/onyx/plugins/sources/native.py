"""Live sources without a journal: a message is acked when its tree is complete.

What is in flight is in memory, so the owner of a partition reads it again from there. Whoever takes
the partition over begins with nothing: the source gives again what was not acked, and it gets the
positions from the frontier on anew. They count segments, and are the owner's own. Nothing remembers
what they were before, because this is at-least-once at best; exactly-once is refused.

A message is done when the trees of all of its segments are complete, or at once when one of them is
given back to the source: then all of it comes again. So a message with a segment that failed for
good and another that may succeed comes again first, until only the former is left.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec import field

from onyx.errors import Unavailable, contained
from onyx.flow.arrays import Indices
from onyx.flow.batch import U64, Segments
from onyx.ids import AllocationVersion
from onyx.ledger.outcomes import outcomes_of
from onyx.ledger.returns import OUTCOMES, Parts
from onyx.plugins.bases import partition_names
from onyx.plugins.journalled.reader import JournalReader
from onyx.plugins.protocol import Behind, Cursor, Input, PluginContext, Reader, Unanswered
from onyx.plugins.sources.messages import Owed, SourceMessages, messages_of
from onyx.plugins.sources.protocol import LiveSource, OpenSource, Portion, pending_of
from onyx.telemetry.catalog import SOURCE_REDELIVERED

logger = logging.getLogger(__name__)
PART_OF_LEASE = 6
END_TIMEOUT_S = 2.0
RETRY_S = 1.0
LOGGED_EVERY_S = 60.0


class NativeInput(Input):
    """Reads live sources. Implements `protocol.OwningInput`."""

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

    def behind(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        """What is in flight, and what the queue says to have."""
        found = {name: self._open.get(name) for name in cursors}
        return {
            name: partition.behind(cursors[name].position)
            for name, partition in found.items()
            if partition is not None
        }

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

    def behind(self, position: int) -> Behind:
        """What is in flight from a position on, and what the source says to have. From any
        thread."""
        pending = pending_of(self._source)
        return Behind(max(0, self.in_flight.end - position) + (pending or 0), None, pending)

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

    def _tell(self, done: CompletedMessages) -> None:
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
        """The trees of these positions are complete (`protocol.AckedReader`)."""
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


class CompletedMessages(msgspec.Struct):
    """Messages of which all trees are complete."""

    processed: list[Any] = field(default_factory=list)
    """Their handles."""
    refused: list[tuple[Any, str]] = field(default_factory=list)
    """Handles of those of which segments have failed for good, and why."""


class _Held(msgspec.Struct):
    """The messages of one portion."""

    first: int
    end: int
    runs: Sequence[Segments]
    ends: Indices
    """Behind the last position of each message."""
    left: Indices
    """Segments of each whose trees are not complete; 0 when it was handed out as done."""
    handles: list[Any]
    ids: Sequence[str]
    deliveries: list[int]
    """How often each was given; empty: nobody counts."""
    heard_s: float
    """When the source has heard of them last, or has given them."""
    failures: dict[int, str] = field(default_factory=dict)
    """Messages of which a segment has failed for good, and why."""


class InFlight:
    """Bounded by the window of the partition: nothing is taken when that is full. Not
    thread-safe."""

    def __init__(self, position: int) -> None:
        self._held: deque[_Held] = deque()
        self._where: dict[str, tuple[_Held, int]] = {}
        """Messages that are not done, by their ids."""
        self.end = position
        """Behind the last position."""

    def add(self, messages: SourceMessages, now_s: float = 0.0) -> tuple[int, int, list[Any]]:
        """Messages that came. Returns where those that are new begin, how many were not new, and
        the handles of those that have no segments."""
        known = np.array([self._again(messages, index) for index in range(len(messages.counts))])
        again = int(np.count_nonzero(known))
        if again:
            messages = messages.without(known)
        counts = np.array(messages.counts, dtype=np.intp)
        first, self.end = self.end, self.end + messages.segments
        held = _Held(
            first,
            self.end,
            messages.runs,
            first + np.cumsum(counts),
            counts,
            list(messages.handles),
            messages.ids,
            list(messages.deliveries),
            now_s,
        )
        self._held.append(held)
        self._where.update(
            (id, (held, index)) for index, id in enumerate(held.ids) if counts[index]
        )
        return first, again, [held.handles[index] for index in np.flatnonzero(counts == 0).tolist()]

    def _again(self, messages: SourceMessages, index: int) -> bool:
        """Whether a message is in flight; then its newest handle is the one that counts."""
        if not messages.ids or (found := self._where.get(messages.ids[index])) is None:
            return False
        held, number = found
        if messages.handles:
            held.handles[number] = messages.handles[index]
        if messages.deliveries:
            held.deliveries[number] = messages.deliveries[index]
        return True

    def complete(self, positions: U64) -> CompletedMessages:
        """The trees of these positions, which rise, are complete. Returns the messages of which
        that was the last."""
        done = CompletedMessages()
        for held, numbers, counts in self._messages(positions):
            before = held.left[numbers]
            held.left[numbers] = np.maximum(before - counts, 0)
            self._done(held, numbers[(before > 0) & (before <= counts)], done)
        return done

    def passed(self, position: int) -> CompletedMessages:
        """All before this position is complete, and is not read again. Returns the messages that
        `complete` has not said."""
        done = CompletedMessages()
        for held in self._held:
            if held.first >= position:
                break
            numbers = np.flatnonzero((held.ends <= position) & (held.left > 0))
            held.left[numbers] = 0
            self._done(held, numbers, done)
        while self._held and self._held[0].end <= position:
            self._held.popleft()
        return done

    def has_failed(self, position: int, why: str) -> None:
        """A segment that is in flight has failed for good; its tree will be complete."""
        found = self._messages(np.array([position], dtype=np.uint64))
        for held, numbers, _ in found:
            held.failures.setdefault(int(numbers[0]), why)

    def given_back(self, positions: U64) -> list[tuple[Any, int]]:
        """These positions, which rise, are to come again from the source: the handles of their
        messages, which are done with that, and how often each was given."""
        found: list[tuple[Any, int]] = []
        for held, numbers, _ in self._messages(positions):
            numbers = numbers[held.left[numbers] > 0]
            held.left[numbers] = 0
            self._forget(held, numbers)
            given = held.deliveries or [1] * len(held.handles)
            found += [
                (held.handles[number], given[number])
                for number in (numbers.tolist() if held.handles else ())
            ]
        return found

    def _messages(self, positions: U64) -> list[tuple[_Held, Indices, Indices]]:
        """The messages of positions, which rise, and how many of these each has."""
        found: list[tuple[_Held, Indices, Indices]] = []
        for held in self._held:
            first, last = np.searchsorted(positions, [held.first, held.end])
            if first == last:
                continue
            its = positions[first:last].astype(np.intp)
            owners = np.searchsorted(held.ends, its, side="right")
            found.append((held, *np.unique(owners, return_counts=True)))
        return found

    def _done(self, held: _Held, numbers: Indices, done: CompletedMessages) -> None:
        self._forget(held, numbers)
        if not held.handles:
            return
        if not held.failures:
            done.processed += [held.handles[number] for number in numbers.tolist()]
            return
        for number in numbers.tolist():
            why = held.failures.pop(number, None)
            if why is None:
                done.processed.append(held.handles[number])
            else:
                done.refused.append((held.handles[number], why))

    def _forget(self, held: _Held, numbers: Indices) -> None:
        for number in numbers.tolist() if held.ids else ():
            self._where.pop(held.ids[number], None)

    def at(self, position: int) -> tuple[int, list[Segments]] | None:
        """The portion that has a position: its first position, and its runs."""
        for held in self._held:
            if held.first <= position < held.end:
                return held.first, list(held.runs)
        return None

    def first_of(self, position: int) -> int:
        """Every position can be read from."""
        return position

    def incomplete(self, heard_before_s: float | None = None) -> list[Any]:
        """The handles of all that is not processed.

        Args:
            heard_before_s: only of what the source has not heard of since.
        """
        return [
            held.handles[number]
            for held in self._held
            if held.handles and (heard_before_s is None or held.heard_s < heard_before_s)
            for number in np.flatnonzero(held.left > 0).tolist()
        ]

    def heard(self, before_s: float, now_s: float) -> None:
        """The source has heard of all of which it had not heard since `before_s`."""
        for held in self._held:
            if held.heard_s < before_s:
                held.heard_s = now_s
