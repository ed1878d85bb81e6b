"""The receiving half of a link: channels that others opened, their inboxes, and credit for them.

Called with the link's lock held, except `deliver`, which only the reader calls, without it: it puts
items into inboxes, and those wake tasks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from onyx.transport.counters import Counters
from onyx.transport.encoded import Encoded
from onyx.transport.frames import encoder
from onyx.transport.frames.packets import Close, Credit, FrameError, Item, Open, Schema
from onyx.transport.inbox import BoundedInbox, Inboxes, InboxKey, weight
from onyx.transport.interface import Channel, Control
from onyx.transport.sending import CHANNELS_MAX, InChannel


class Receiving:
    """What the frames of one stream are for those who receive them."""

    def __init__(
        self,
        lock: threading.Lock,
        inboxes: Inboxes,
        counters: Counters,
        append: Callable[[bytes], None],
    ) -> None:
        """`append` queues a packet (credit) for the other side; called with the lock held."""
        self.session = 0
        """The other side's numbering; 0 before any was heard."""
        self.received = 0
        """Packets of that session that have been handled."""
        self._lock = lock
        self._inboxes = inboxes
        self._counters = counters
        self._append = append
        self._channels: dict[int, InChannel] = {}
        self._last_opened = 0

    def agree(self, session: int) -> bool:
        """Take the other side's session; True if it goes on where it was."""
        if self.session == session:
            return True
        self.forget()
        self.session = session
        return False

    def forget(self) -> None:
        """Drop all channels: the other side numbers its packets anew."""
        for channel in self._channels.values():
            channel.detach()
        self._channels.clear()
        self._last_opened = 0
        self.received = 0

    def deliver(self, packet: Item) -> None:
        """Put an item into its inbox; drop it if its peer and version are not here."""
        with self._lock:
            channel = self._channels.get(packet.number)
            if channel is None or packet.sequence != channel.sequence + 1:
                due = channel.sequence + 1 if channel else "none"
                raise FrameError(
                    f"item {packet.sequence} came on channel {packet.number} where {due} was due"
                )
            channel.sequence = packet.sequence
            item = _with_schema(packet.item, channel)
            channel.arrived += weight(item)
            inbox = channel.inbox
            if inbox is None:
                self._counters.dropped_version += 1
                return
        inbox.deliver(channel.channel, item, self._taken(channel, inbox))

    def _taken(self, channel: InChannel, inbox: BoundedInbox) -> Callable[[int], None]:
        def taken(segments: int) -> None:
            with self._lock:
                if channel.inbox is inbox and channel.take(segments, inbox.window()):
                    self._grant(channel, inbox)

        return taken

    def _grant(self, channel: InChannel, inbox: BoundedInbox) -> None:
        channel.announced, channel.granted = channel.taken, inbox.window()
        credit = Credit(channel.number, channel.taken, channel.granted, channel.hungry)
        self._append(encoder.credit_packet(credit))

    def open(self, packet: Open) -> None:
        """A channel is open from now on.

        Raises:
            FrameError: its number has been used, or too many are open.
        """
        if packet.number <= self._last_opened:
            raise FrameError(f"channel {packet.number} is open already")
        if len(self._channels) > CHANNELS_MAX:
            raise FrameError(f"more than {CHANNELS_MAX} channels are open")
        self._last_opened = packet.number
        channel = InChannel(packet.number, packet.channel)
        self._channels[packet.number] = channel
        inbox = self._inboxes.find(_key(packet.channel))
        if inbox is not None:
            channel.attach(inbox)
            self._grant(channel, inbox)

    def take_schema(self, packet: Schema) -> None:
        """The batches of columns that follow on a channel are of this schema.

        Raises:
            FrameError: the channel is not open.
        """
        channel = self._channels.get(packet.number)
        if channel is None:
            raise FrameError(f"a schema came on channel {packet.number}, which is not open")
        channel.schema = packet.schema

    def close(self, packet: Close) -> None:
        """The sender will not use the channel again."""
        channel = self._channels.pop(packet.number, None)
        if channel is not None:
            channel.detach()

    def inbox_opened(self, inbox: BoundedInbox) -> None:
        """Grant credit to senders that came before the inbox."""
        for channel in self._channels.values():
            if channel.inbox is not inbox and _key(channel.channel) == inbox.key:
                channel.detach()
                channel.attach(inbox)
                self._grant(channel, inbox)

    def inbox_closed(self, inbox: BoundedInbox) -> None:
        """Drop what arrives for this inbox from now on."""
        for channel in self._channels.values():
            if channel.inbox is inbox:
                channel.detach()


def _with_schema(item: Encoded | Control, channel: InChannel) -> Encoded | Control:
    if not (isinstance(item, Encoded) and item.columnar):
        return item
    if channel.schema is None:
        raise FrameError(f"columns came on channel {channel.number} before their schema")
    return item.of_schema(channel.schema)


def _key(channel: Channel) -> InboxKey:
    return channel.job, channel.version, channel.target
