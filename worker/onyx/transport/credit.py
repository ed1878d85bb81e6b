"""Flow control and reliable order of one link, as plain state without threads, clock or network.

Two bounds hold a sender back. *Credit*, per channel, counts segments: the receiver gives each
channel an equal share of its inbox as a window and says how many segments its task has taken.
*Bytes*, per link, bound what is queued or not yet acknowledged.

One numbering for all packets of a link and direction (`SendLane`) gives batches, control items,
acks, completions and credit the same promise across a reconnect: each arrives once and in order.
A numbering for each channel would need as many cumulative acknowledgements, and one more for every
lane that is no channel. Each channel still counts its own items: the receiver checks the count, so
that a fault in the lane breaks the stream instead of reaching a task.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from onyx.transport.inbox import BoundedInbox
from onyx.transport.interface import Channel


class SendLane:
    """Packets of one session: those that wait, and those sent but not acknowledged."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.acknowledged = 0
        self.bytes = 0
        """Of all packets held."""
        self.waiting_bytes = 0
        self.urgent = False
        """Whether one of the packets that wait is."""
        self._waiting: deque[bytes] = deque()
        self._unacknowledged: deque[bytes] = deque()

    @property
    def sent(self) -> int:
        """Number of the last packet sent."""
        return self.acknowledged + len(self._unacknowledged)

    def append(self, packet: bytes, urgent: bool = True) -> None:
        self._waiting.append(packet)
        self.urgent |= urgent
        self.bytes += len(packet)
        self.waiting_bytes += len(packet)

    def next_packets(self, bytes_max: int) -> tuple[int, list[bytes]]:
        """Number of the first, and the next packets up to `bytes_max` (always one if any waits)."""
        first = self.sent + 1
        taken: list[bytes] = []
        size = 0
        while self._waiting and (not taken or size + len(self._waiting[0]) <= bytes_max):
            packet = self._waiting.popleft()
            size += len(packet)
            taken.append(packet)
        self._unacknowledged.extend(taken)
        self.waiting_bytes -= size
        self.urgent &= bool(self._waiting)
        return first, taken

    def acknowledge(self, received: int) -> None:
        """Forget packets up to number `received`, which was sent before."""
        assert received <= self.sent, "acknowledged before it was sent"
        while self.acknowledged < received:
            self.bytes -= len(self._unacknowledged.popleft())
            self.acknowledged += 1

    def rewind(self) -> int:
        """Send again whatever is not acknowledged; how many packets that is."""
        again = len(self._unacknowledged)
        self.waiting_bytes += sum(map(len, self._unacknowledged))
        self._waiting.extendleft(reversed(self._unacknowledged))
        self.urgent |= again > 0
        self._unacknowledged.clear()
        return again

    def __len__(self) -> int:
        return len(self._waiting) + len(self._unacknowledged)


@dataclass(slots=True)
class OutChannel:
    """Sending end of a channel."""

    number: int
    channel: Channel
    sequence: int = 0
    sent: int = 0
    taken: int = 0
    window: int = 0

    def may_send(self, segments: int) -> bool:
        """Whether a batch may go. One that does not fit may go too while at most half of the window
        is in use: a batch larger than the window must be able to pass, and the receiver returns
        credit in quarters, so that waiting for an empty window could last for ever."""
        in_use = self.sent - self.taken
        return self.window > 0 and (in_use + segments <= self.window or in_use * 2 <= self.window)

    def advance(self, segments: int) -> int:
        """Count an item as sent; its sequence number."""
        self.sent += segments
        self.sequence += 1
        return self.sequence

    def credit(self, taken: int, window: int) -> bool:
        """Note the receiver's totals; False if they are impossible. Older ones change nothing."""
        if taken > self.sent:
            return False
        if taken >= self.taken:
            self.taken, self.window = taken, window
        return True


@dataclass(slots=True)
class InChannel:
    """Receiving end of a channel; without an inbox while its peer and version are not here."""

    number: int
    channel: Channel
    inbox: BoundedInbox | None = None
    sequence: int = 0
    arrived: int = 0
    taken: int = 0
    announced: int = -1
    """`taken` as last told to the sender; -1 when it has never been told."""

    def attach(self, inbox: BoundedInbox) -> None:
        """The inbox is open now. What came before was dropped and occupies none of its room."""
        inbox.join()
        self.inbox = inbox
        self.taken = self.arrived
        self.announced = -1

    def detach(self) -> None:
        """The inbox or the channel is closed."""
        if self.inbox is not None:
            self.inbox.leave()
            self.inbox = None

    def take(self, segments: int, window: int) -> bool:
        """The task has taken so many; True if the sender should hear of it."""
        self.taken += segments
        return self.announced < 0 or self.taken - self.announced >= max(1, window // 4)
