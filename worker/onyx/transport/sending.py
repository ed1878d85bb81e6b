"""The sending half of a link: its queue, its channels, and what holds senders back.

Every method is called with the link's lock held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from onyx.settings import TransportSettings
from onyx.transport.counters import Counters
from onyx.transport.credit import OutChannel
from onyx.transport.encoded import Encoded
from onyx.transport.frames import encoder
from onyx.transport.frames.packets import Credit, FrameError
from onyx.transport.inbox import weight
from onyx.transport.interface import Channel, Control
from onyx.transport.pacing import Urgency
from onyx.transport.packet_queue import PacketQueue

CHANNELS_MAX = 4_096
"""Open channels a link and direction; the oldest are closed beyond (and opened again by a send)."""


class Sending:
    """What goes to one other group, frame by frame."""

    def __init__(
        self,
        session: int,
        settings: TransportSettings,
        counters: Counters,
        due_sooner: Callable[[], None],
    ) -> None:
        """`due_sooner` is called when the next frame may be due earlier than it was: the first
        packet waits, one more urgent than those before it, or enough for a whole frame."""
        self.packets = PacketQueue(session)
        self._link_bytes_max = settings.link_bytes_max
        self._frame_bytes_target = settings.frame_bytes_target
        self._counters = counters
        self._due_sooner = due_sooner
        self._channels: dict[Channel, OutChannel] = {}
        self._by_number: dict[int, OutChannel] = {}
        self._last_number = 0
        self._refused = False
        self.closed = False

    def admit(self, channel: Channel, segments: int) -> OutChannel | None:
        """The channel if a batch of this size may be sent on it now; it is opened if need be."""
        if self.closed:
            self.refuse()
            return None
        out = self._channels.get(channel) or self._open(channel)
        if self.full() or not out.may_send(segments):
            self.refuse()
            return None
        return out

    def queue(
        self,
        out: OutChannel,
        pieces: Iterable[Encoded | Control],
        urgency: Urgency = Urgency.ITEM,
    ) -> bool:
        """Queue what was admitted; False if the channel has gone meanwhile.

        Raises:
            SegmentError: a schema is too large; nothing was queued.
        """
        if self._channels.get(out.channel) is not out:
            self.refuse()
            return False
        for piece in pieces:
            if isinstance(piece, Encoded) and piece.schema is not None:
                self._send_schema(out, piece.schema)
            sequence = out.advance(weight(piece))
            self.append(encoder.item_packet(out.number, sequence, piece), urgency)
        return True

    def _send_schema(self, out: OutChannel, schema: pa.Schema) -> None:
        """Before the first batch of columns of a channel, and when it changes. A channel lives as
        long as the session, whose packets arrive once and in order, so once is enough."""
        if out.schema is None or not out.schema.equals(schema):
            self.append(encoder.schema_packet(out.number, schema))
            out.schema = schema

    def append(self, packet: bytes, urgency: Urgency = Urgency.PATIENT) -> None:
        """Queue a packet."""
        queue = self.packets
        sooner = not queue.waiting_bytes or urgency > queue.urgency
        queue.append(packet, urgency)
        if sooner or queue.waiting_bytes >= self._frame_bytes_target:
            self._due_sooner()

    def full(self) -> bool:
        """Whether the link holds as many bytes as it may, or is closed."""
        return self.closed or self.packets.bytes >= self._link_bytes_max

    def refuse(self) -> None:
        """Remember that a sender waits for room, which only what was sent can make."""
        self._refused = True
        self._counters.refused_sends += 1
        if self.packets.waiting_bytes and self.packets.urgency < Urgency.FLUSH:
            self.packets.urgency = Urgency.FLUSH
            self._due_sooner()

    def take_refused(self) -> bool:
        """Whether a sender waits for room, once."""
        refused, self._refused = self._refused, False
        return refused

    def acknowledge(self, received: int) -> bool:
        """The other side has so many packets; True if a sender that was refused may try again."""
        if received > self.packets.sent:
            raise FrameError(f"{received} packets were received, {self.packets.sent} were sent")
        was_full = self.full()
        self.packets.acknowledge(received)
        return was_full and not self.full() and self.take_refused()

    def credit(self, packet: Credit) -> bool:
        """Note credit; True if a sender that was refused may try again."""
        out = self._by_number.get(packet.number)
        if out is None:
            return False
        if not out.credit(packet.taken, packet.window):
            raise FrameError(f"{packet.taken} segments were taken, {out.sent} sent: {out.channel}")
        return self.take_refused()

    def resume(self, received: int) -> None:
        """A new stream: send what comes after `received` again."""
        self.acknowledge(received)
        self._counters.resent_packets += self.packets.rewind()

    def restart(self, session: int) -> None:
        """The other side has forgotten us: give up what waits. Channels are opened again by the
        next send, under new numbers, so that credit for an old one can never be taken for theirs.
        """
        self._counters.dropped_unsent += len(self.packets)
        self.packets = PacketQueue(session)
        self._channels.clear()
        self._by_number.clear()

    def close(self) -> None:
        """Drop what waits and refuse all sends from now on."""
        self.restart(self.packets.session)
        self.closed = True

    def _open(self, channel: Channel) -> OutChannel:
        for stale in self._superseded(channel):
            del self._channels[stale.channel], self._by_number[stale.number]
            self.append(encoder.close_packet(stale.number))
        self._last_number += 1
        out = OutChannel(self._last_number, channel)
        self._channels[channel] = self._by_number[out.number] = out
        self.append(encoder.open_packet(out.number, channel))
        return out

    def _superseded(self, channel: Channel) -> list[OutChannel]:
        """Channels that need not be kept now: of older versions of the job, or the oldest."""
        older = [
            out
            for out in self._channels.values()
            if out.channel.job == channel.job and out.channel.version < channel.version
        ]
        if not older and len(self._channels) >= CHANNELS_MAX:
            return [next(iter(self._channels.values()))]
        return older
