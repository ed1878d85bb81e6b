"""Inboxes: one bounded queue in front of each task of a peer, for one allocation version.

A batch from another process waits here as bytes and is decoded by the thread that takes it. So a
network thread spends no time on segments, and a batch that is dropped costs nothing.

Bounds. A local sender is refused when the queue is full; an empty queue takes any batch, or a batch
larger than the inbox could never pass. A remote sender is bounded by credit (`sending`), which is
returned as the task takes deliveries; a remote packet that has arrived is always accepted.

Bytes are bounded by segments too: of large ones fewer may wait, by what one has taken of late. So
credit stays in segments, of which a sender knows the number before it encodes them. Rejected: to
count the bytes of each batch, for which dicts would be encoded though they go nowhere.

Turns. Room is kept for the local senders that were refused, in their order. Without that some
starve: the tasks of a thread are advanced in a fixed order, so the first one that always has
something to send fills whatever room there is. A sender that does not come again, because another
peer took its batch or its task has stopped, loses its place when somebody behind it has asked twice
meanwhile. Rejected: a share of the room for each local sender, because a batch larger than the
share would need a rule of its own.

Load. A sender that may choose asks what a peer has to do (`load`). It is hungry when its task has
looked for more and found nothing, and behind when two of its batches wait. Who is in another
process knows only of hunger: by the credit that is returned then, and already when the task takes
the last that waits, unless it is fed by its own process. That nothing waits says nothing then: the
tasks of a thread take turns, so what the process reads is always taken at once.

What is held back (`hold`) stays aside and takes no room, so that others go on: its senders are
refused meanwhile, and remote ones get no credit.

Fencing: an inbox takes only items of its own allocation version. Items of a former version find no
inbox and are dropped.

Threads: `offer` is called by any thread, `take` by the thread of the task, `close` by any. One
lock guards the queue. Callbacks (`wake`, `taken`, `room`) are called after it has been released,
so they may take locks of their own.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import NamedTuple

import msgspec

from onyx.base.runs import Numbers
from onyx.codec.segments import bytes_each
from onyx.errors import InvariantViolated, SegmentError
from onyx.flow.batch import Batch, format_of
from onyx.ids import AllocationVersion, JobId, PeerId
from onyx.transport.counters import Counters
from onyx.transport.encoded import Encoded
from onyx.transport.interface import (
    Bounds,
    Channel,
    Control,
    ControlKind,
    Delivery,
    Load,
    Partial,
    Sendable,
)

logger = logging.getLogger("onyx.transport")
InboxKey = tuple[JobId, AllocationVersion, PeerId]
BATCH_FIRST = 128
BATCHES_AHEAD = 2
"""A task is behind when so many batches wait: the next one should be there when it ends one, and
what waits beyond is better done by whoever is hungry first."""
_HURRYING = frozenset({ControlKind.FLUSH, ControlKind.END})


SAMPLED_EVERY_BATCHES = 8
"""One batch of dicts of this process in so many is looked at: a part of it is encoded."""

DICT_BYTES = 300
"""What a segment takes in memory as a dict, beside its values."""

FORGETTING = 8
"""That segments are smaller is followed by one part in so many at each look."""


def weight(item: Sendable | Encoded) -> int:
    """Segments that an item counts for; a control item is one, so that they are bounded too."""
    if isinstance(item, Control):
        return 1
    return item.segments if isinstance(item, Encoded) else len(item)


class _Waiting(msgspec.Struct):
    channel: Channel
    item: Sendable | Encoded
    weight: int
    taken: Callable[[int], None] | None


class _Turn(NamedTuple):
    """A local sender that waits for room."""

    tried: int
    """Number of its last try, of all tries that were refused."""
    weight: int


class BoundedInbox:
    """The inbox of one task on one peer, bounded by segments and bytes. Implements `Inbox`."""

    def __init__(
        self,
        key: InboxKey,
        bounds: Bounds,
        wake: Callable[[], None],
        room: Callable[[], None],
        closed: Callable[[BoundedInbox], None],
    ) -> None:
        """`room` is called when a local sender that was refused may try again, `closed` once."""
        assert bounds.segments > 0, "an inbox that holds nothing would block its job"
        self.key = key
        self._bounds = bounds
        self._bytes_each = 0.0
        """What a segment takes, as far as that is known: it rises at once and falls slowly."""
        self._unsampled = SAMPLED_EVERY_BATCHES
        self.counters = Counters()
        self._wake = wake
        self._room = room
        self._closed = closed
        self._lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._held: frozenset[PeerId] = frozenset()
        self._aside: deque[_Waiting] = deque()
        """What waits of those who are held back."""
        self._waiting = 0
        self._hurrying = 0
        self._refused = False
        """Somebody was refused since senders were told of room."""
        self._turns: dict[Channel, _Turn] = {}
        """Local senders that wait for room, in their order."""
        self._tries = 0
        self._batch = BATCH_FIRST
        """Segments that the task takes at once, at most, as far as it has taken any."""
        self._owed: dict[Channel, Callable[[int], None]] = {}
        """Channels of other processes of which something was taken since nothing was found."""
        self._hungry = True
        self._fed = False
        """Whether something of this process has come since the task looked last."""
        self._open = True
        self._remote_channels = 0

    @property
    def segments_max(self) -> int:
        """Segments that may wait now."""
        bounds, each = self._bounds, self._bytes_each
        if each * bounds.segments <= bounds.bytes:
            return bounds.segments
        return max(1, int(bounds.bytes / each))

    def _look_at(self, item: Sendable | Encoded) -> None:
        """Learn of an item how large segments are, under the lock."""
        if isinstance(item, Encoded):
            each = len(item.payload) / max(1, item.segments)
        elif isinstance(item, Partial):
            each = len(item.states) / max(1, len(item))
        elif isinstance(item, Control):
            return
        else:
            of_objects = format_of(item.segments).of_objects
            self._unsampled += 1
            if of_objects and self._unsampled < SAMPLED_EVERY_BATCHES:
                return
            self._unsampled = 0
            each = bytes_each(item.segments) + DICT_BYTES * of_objects
        known = self._bytes_each
        self._bytes_each = each if each >= known else known - (known - each) / FORGETTING

    def join(self) -> None:
        """One more channel from another process shares this inbox."""
        with self._lock:
            self._remote_channels += 1

    def leave(self) -> None:
        """A channel from another process is closed."""
        with self._lock:
            self._remote_channels -= 1

    def window(self) -> int:
        """Segments that each remote channel may have on the way or waiting. A channel that was
        granted a larger share before others joined keeps it until its next credit."""
        return max(1, self.segments_max // max(1, self._remote_channels))

    def offer(self, channel: Channel, item: Sendable) -> bool:
        """Take an item of this process, or refuse it: False when there is no room besides what is
        kept for others, or the inbox has been closed."""
        size = weight(item)
        with self._lock:
            if channel.source in self._held:
                self._refused = True
                self.counters.refused_sends += 1
                return False
            kept = self._kept_from(channel) if self._turns else 0
            full = (self._queue or kept) and self._waiting + kept + size > self.segments_max
            if full or not self._open:
                self._refuse(channel, size)
                return False
            self._turns.pop(channel, None)
            self.counters.local_batches += 1
            self._look_at(item)
            self._fed = True
            was_empty = self._append(_Waiting(channel, item, size, None))
        if was_empty:
            self._wake()
        return True

    def load(self) -> Load:
        """What the task has to do. When it is behind, senders hear of room by the next
        `take`."""
        with self._lock:
            if self._hungry:
                return Load.HUNGRY
            if self._waiting < BATCHES_AHEAD * self._batch:
                return Load.BUSY
            self._refused = True
            return Load.BEHIND

    def _kept_from(self, channel: Channel) -> int:
        """Segments of those that wait before this sender, under the lock. Who has not come again
        since this one was refused waits no more."""
        turns = self._turns
        mine = turns.get(channel)
        if mine is None:
            return sum(each.weight for each in turns.values())
        before = list(takewhile(lambda each: each != channel, turns))
        for gone in [each for each in before if turns[each].tried < mine.tried]:
            del turns[gone]
        return sum(turns[each].weight for each in before if each in turns)

    def _refuse(self, channel: Channel, size: int) -> None:
        """Note under the lock who waits for room; who waits already keeps its place."""
        self._refused = True
        self.counters.refused_sends += 1
        if self._open:
            self._tries += 1
            self._turns[channel] = _Turn(self._tries, size)

    def deliver(
        self, channel: Channel, item: Encoded | Control, taken: Callable[[int], None]
    ) -> None:
        """Take an item of another process; `taken` gets its weight when the task has it, and 0 when
        the task has found nothing after that."""
        with self._lock:
            if not self._open:
                self.counters.dropped_version += 1
                return
            self._look_at(item)
            waiting = _Waiting(channel, item, weight(item), taken)
            if channel.source in self._held:
                self._aside.append(waiting)
                return
            was_empty = self._append(waiting)
        if was_empty:
            self._wake()

    def _append(self, waiting: _Waiting) -> bool:
        """Append under the lock; True if the queue was empty."""
        was_empty = not self._queue
        self._queue.append(waiting)
        self._hungry = False
        self._waiting += waiting.weight
        self._hurrying += hurries(waiting.item)
        return was_empty

    def hold(self, senders: frozenset[PeerId]) -> None:
        """Hold back what comes from these peers, and from no others any more."""
        if senders == self._held:
            return
        with self._lock:
            self._held = senders
            # What is let go is older than all else of its channels.
            waiting = [*self._aside, *self._queue]
            self._aside = deque(each for each in waiting if each.channel.source in senders)
            self._queue = deque(each for each in waiting if each.channel.source not in senders)
            self._waiting = sum(each.weight for each in self._queue)
            self._hurrying = sum(hurries(each.item) for each in self._queue)
            for channel in [each for each in self._turns if each.source in senders]:
                del self._turns[channel]
            room, self._refused = self._refused, False
        if room:
            self._room()

    def take(self, segments_max: int) -> list[Delivery]:
        """Deliveries in order per channel, at most about `segments_max` segments in all (always at
        least one delivery if any waits)."""
        taken: list[_Waiting] = []
        total = 0
        with self._lock:
            while self._queue and (not taken or total + self._queue[0].weight <= segments_max):
                waiting = self._queue.popleft()
                total += waiting.weight
                self._hurrying -= hurries(waiting.item)
                taken.append(waiting)
            self._waiting -= total
            self._batch = segments_max
            # Reset under the lock and told after it: a sender that is refused in between sets it
            # again, and is told by the next `take`.
            room = self._refused and bool(taken)
            if room:
                self._refused = False
            remote = {each.channel: each.taken for each in taken if each.taken is not None}
            self._owed |= remote
            self._hungry = not taken
            hungry: dict[Channel, Callable[[int], None]] = {}
            if not self._queue and not self._fed:
                hungry, self._owed = self._owed, hungry
            self._fed = False
        _return_credit(taken)
        for report in hungry.values():
            report(0)
        if room:
            self._room()
        return self._decoded(taken)

    def _decoded(self, taken: Iterable[_Waiting]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for waiting in taken:
            if isinstance(waiting.item, Encoded):
                deliveries += self._decode(waiting.channel, waiting.item)
            else:
                deliveries.append(Delivery(waiting.channel, waiting.item))
        return deliveries

    def _decode(self, channel: Channel, encoded: Encoded) -> list[Delivery]:
        try:
            return [Delivery(channel, encoded.decode())]
        except SegmentError as error:
            logger.error(
                "dropped a batch of %d segments on %s: %s",
                encoded.segments,
                channel,
                error,
            )
            with self._lock:
                self.counters.dropped_corrupt += 1
            return []

    def waiting_segments(self) -> int:
        """Segments that wait; a control item counts as one."""
        return self._waiting

    def waiting_by_sender(self) -> Counter[PeerId]:
        """Segments that wait, also held back, by who has sent them; from any thread."""
        found: Counter[PeerId] = Counter()
        with self._lock:
            for waiting in (*self._aside, *self._queue):
                if not isinstance(waiting.item, Control):
                    found[waiting.channel.source] += waiting.weight
        return found

    def waiting_roots(self) -> list[Numbers]:
        """The roots of the batches that wait, as far as they have any; from any thread."""
        with self._lock:
            items = [waiting.item for waiting in (*self._aside, *self._queue)]
        columns = [each.roots_column() for each in items if isinstance(each, Encoded)]
        columns += [each.roots for each in items if isinstance(each, Batch | Partial)]
        return [each for each in columns if each is not None]

    @property
    def hurried(self) -> bool:
        """Whether a FLUSH or END waits: nobody should wait for more before them."""
        return self._hurrying > 0

    def drain(self) -> list[Delivery]:
        """Close, and give what waited; later frames for it are dropped and counted."""
        return self._decoded(self._shut(dropped=False))

    def close(self) -> None:
        """Drop what waits; later frames for it are dropped and counted."""
        self._shut(dropped=True)

    def _shut(self, dropped: bool) -> list[_Waiting]:
        """Close; what waited, the first time."""
        with self._lock:
            if not self._open:
                return []
            self._open = False
            left = [*self._aside, *self._queue]
            self.counters.dropped_version += len(left) if dropped else 0
            self._aside.clear()
            self._queue.clear()
            self._turns.clear()
            self._waiting = 0
        self._room()
        self._closed(self)
        return left


def hurries(item: Sendable | Encoded) -> bool:
    """Whether nobody should wait for more before this item."""
    return isinstance(item, Control) and item.kind in _HURRYING


def _return_credit(taken: list[_Waiting]) -> None:
    for waiting in taken:
        if waiting.taken is not None:
            waiting.taken(waiting.weight)


class Inboxes:
    """All open inboxes of a process, by job, version and target. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[InboxKey, BoundedInbox] = {}
        self._past = Counters()
        self._opened: Callable[[BoundedInbox], None] = lambda inbox: None
        self._closed: Callable[[BoundedInbox], None] = lambda inbox: None

    def listen(
        self, opened: Callable[[BoundedInbox], None], closed: Callable[[BoundedInbox], None]
    ) -> None:
        """Links grant credit when an inbox opens and forget its channels when it closes."""
        self._opened, self._closed = opened, closed

    def open(
        self,
        key: InboxKey,
        bounds: Bounds,
        wake: Callable[[], None],
        room: Callable[[], None],
    ) -> BoundedInbox:
        """Open the inbox of a peer for one allocation version; arguments as in `BoundedInbox`."""
        inbox = BoundedInbox(key, bounds, wake, room, self._remove)
        with self._lock:
            if key in self._open:
                raise InvariantViolated(f"inbox {key} is open already")
            self._open[key] = inbox
        self._opened(inbox)
        return inbox

    def find(self, key: InboxKey) -> BoundedInbox | None:
        """The open inbox with this key; None if there is none."""
        return self._open.get(key)

    def close_all(self) -> None:
        """Close every inbox."""
        for inbox in list(self._open.values()):
            inbox.close()

    def counters(self) -> Counters:
        """Totals of all inboxes, also of those that are closed."""
        total = Counters()
        with self._lock:
            total.add(self._past)
            for inbox in self._open.values():
                total.add(inbox.counters)
        return total

    def _remove(self, inbox: BoundedInbox) -> None:
        with self._lock:
            self._open.pop(inbox.key, None)
            self._past.add(inbox.counters)
        self._closed(inbox)
