"""Credit: the flow control of channels, as plain state without threads, clock or network.

Credit counts segments. The receiver gives each channel a window, an equal share of its inbox, and
reports the total of segments that its task has taken. Invariant: the sender has at most a window of
segments beyond that total in flight (see `may_send` for a batch larger than the window). Totals and
not differences: a repeated or late report does no harm.

Credit bounds what a receiver holds for each channel; `PacketQueue.bytes` bounds what a sender holds
for each link.

Each channel also counts its items, and the receiver checks the count: a fault in the numbering of
packets breaks the stream and never reaches a task.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from onyx.transport.inbox import BoundedInbox
from onyx.transport.interface import Channel


class OutChannel(msgspec.Struct):
    """Sending end of a channel."""

    number: int
    channel: Channel
    sequence: int = 0
    sent: int = 0
    taken: int = 0
    window: int = 0
    schema: pa.Schema | None = None
    """That the receiver knows, or will before the next batch."""

    def may_send(self, segments: int) -> bool:
        """Whether a batch may go. One that does not fit may go too while at most half of the window
        is in use: a batch larger than the window must be able to pass, and the receiver returns
        credit in halves, so that waiting for an empty window could last for ever."""
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


class InChannel(msgspec.Struct):
    """Receiving end of a channel; without an inbox while its peer and version are not here."""

    number: int
    channel: Channel
    inbox: BoundedInbox | None = None
    sequence: int = 0
    arrived: int = 0
    taken: int = 0
    schema: pa.Schema | None = None
    """The schema of the batches of columns that come; the channel keeps it while no inbox is
    open."""
    announced: int = -1
    """`taken` as last reported to the sender; -1 before the first report."""
    granted: int = 0
    """Window as last reported to the sender."""

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
        """The task has taken so many; True if that should be reported to the sender: when it takes
        more than half of the window that it knows for in use, beyond which it may send nothing.
        Sooner would cost more messages, for which batches do not wait."""
        self.taken += segments
        return self.announced < 0 or self.taken - self.announced > min(window, self.granted) // 2
