"""The sending half of a link: its queue, its channels, and what holds senders back. Every method is
called with the link's lock held.

*The queue.* Invariant: packets of a session are numbered from 1 without a gap, and each stays here
until the other side has acknowledged its number. A new stream sends again what is not acknowledged,
and the receiver drops numbers that it has. So each packet arrives once and in order, over any
number of streams. Why replay by the ledger does not make this needless: docs/decisions/0028. One
numbering serves all packets: batches, control items, acks, completions and credit. Rejected: a
numbering for each channel, which needs as many cumulative acknowledgements, and one more for every
packet that belongs to no channel.

*Pace*: the trade of latency against CPU, and nothing else. A gRPC message costs up to 500 us of CPU
at both ends together, whatever its size, nearly all of it in threads that wake each other. So
frames are few, and each carries what has gathered:

* A batch waits for company after a frame, the longer the more that one carried: a stream of single
  segments hardly waits, one of whole batches up to `PAUSE_MAX_S`.
* A batch whose sender has the next one in hand waits for that, for at most `GATHER_MAX_S`. This
  does what no pause can, for batches take milliseconds to make, and longer on a busy machine.
* A FLUSH ends these waits: its sender has sent half of what may be in flight, and may soon have
  nothing to do. So does a sender that is refused: it waits for what is to go.
* Replies (completions, acks that a flush has asked for) go with the next batch, or alone if there
  was no frame for `REPLY_PAUSE_S`: they come from several tasks about the same segments.
* What holds nobody up (other acks, credit) goes along, or alone after `PATIENCE_S`.

After a silence everything goes at once, unless more is said to follow. A fixed pause was rejected:
one long enough to gather batches that take milliseconds to make would delay single segments by as
much. So was a larger frame alone: batches do not come fast enough.

*Credit* counts segments. The receiver gives each channel a window, an equal share of its inbox, and
reports the total of segments that its task has taken. Invariant: the sender has at most a window of
segments beyond that total in flight (see `may_send` for a batch larger than the window). Totals and
not differences: a repeated or late report does no harm. Credit bounds what a receiver holds for
each channel; `PacketQueue.bytes` bounds what a sender holds for each link. Each channel also counts
its items, and the receiver checks the count: a fault in the numbering of packets breaks the stream
and never reaches a task. A receiver for which nothing waits reports at once, which is how senders
know that it is hungry.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Callable, Iterable

import msgspec
import pyarrow as pa

from onyx.settings import TransportSettings
from onyx.transport.counters import Counters
from onyx.transport.encoded import Encoded
from onyx.transport.frames import encoder
from onyx.transport.frames.packets import Credit, FrameError
from onyx.transport.inbox import BoundedInbox, weight
from onyx.transport.interface import Channel, Control

PAUSE_MIN_S = 0.0005
PAUSE_MAX_S = 0.005
PAUSE_S_PER_BYTE = 1e-7
"""A batch of 500 small segments (20 kB) is followed by a pause of 2 ms."""
GATHER_MAX_S = 0.02
REPLY_PAUSE_S = 0.003
PATIENCE_S = 0.01
"""An input waits for acks once half of its `maxPending` is in flight, and then they are urgent."""
CHANNELS_MAX = 4_096
"""Open channels a link and direction; the oldest are closed beyond (and opened again by a send)."""


class Urgency(enum.IntEnum):
    """How long a packet may wait, the most patient first."""

    PATIENT = 0
    GATHER = 1
    REPLY = 2
    ITEM = 3
    FLUSH = 4


class Pace:
    """The pace of the frames of one stream after the other. Times are monotonic seconds."""

    def __init__(self, frame_bytes_target: int, heartbeat_interval_s: float) -> None:
        self._full_bytes = frame_bytes_target
        self._heartbeat_interval_s = heartbeat_interval_s
        self._waiting_since_s = math.inf
        self.restart()

    def restart(self) -> None:
        """A new stream: nothing was sent on it yet."""
        self._sent_s = -math.inf
        self._pause_s = PAUSE_MIN_S
        self._rest_s = 0.0

    def queued(self, now_s: float) -> None:
        """Something waits now, if nothing did before."""
        self._waiting_since_s = min(self._waiting_since_s, now_s)

    def sent(self, now_s: float, size: int, left: bool = False) -> None:
        """A frame with so many bytes of packets goes out. `left`: others still wait."""
        self._sent_s = now_s
        self._waiting_since_s = now_s if left else math.inf
        self._pause_s = min(PAUSE_MAX_S, max(PAUSE_MIN_S, size * PAUSE_S_PER_BYTE))
        self._rest_s = max(self._pause_s, REPLY_PAUSE_S) if size else 0.0

    def wait_s(
        self, now_s: float, waiting_bytes: int, urgency: Urgency, unannounced: bool = False
    ) -> float:
        """Seconds until a frame is due; zero or less if it is due now.

        Args:
            waiting_bytes: of all packets that wait.
            urgency: of the most urgent of them.
            unannounced: so much was received that the other side should hear of it.
        """
        if waiting_bytes >= self._full_bytes:
            return 0.0
        if urgency is Urgency.GATHER:
            return min(self._waiting_since_s, now_s) + GATHER_MAX_S - now_s
        return self._pause(waiting_bytes > 0 or unannounced, urgency) - (now_s - self._sent_s)

    def _pause(self, anything: bool, urgency: Urgency) -> float:
        """Seconds between the frame before and the next."""
        if urgency is Urgency.FLUSH:
            return PAUSE_MIN_S
        if urgency is Urgency.ITEM:
            return self._pause_s
        if urgency is Urgency.REPLY:
            return max(self._pause_s, REPLY_PAUSE_S)
        return PATIENCE_S if anything else self._heartbeat_interval_s

    def sleep_s(self, now_s: float, wait_s: float) -> float:
        """How long the writer sleeps of the time until a frame is due, if nothing wakes it: after a
        frame only until its pause is over. More is likely to come by then, and to be woken for it
        costs more than to wake up for nothing."""
        rest_s = self._rest_s - (now_s - self._sent_s)
        return min(wait_s, rest_s) if rest_s > 0 else wait_s


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

    def is_hungry(self, channel: Channel) -> bool:
        """Whether the receiver has found nothing after what was sent on the channel, or nothing was
        yet. When not, a sender that asks hears of credit."""
        out = self._channels.get(channel)
        hungry = not self.full() and (out is None or out.is_hungry())
        self._refused = self._refused or not hungry
        return hungry

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
        if not out.credit(packet):
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


class PacketQueue:
    """Plain state, without threads, clock or network."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.acknowledged = 0
        self.bytes = 0
        """The bytes of all packets held."""
        self.waiting_bytes = 0
        self.urgency = Urgency.PATIENT
        """The urgency of the most urgent of the packets that wait, or one that has just gone."""
        self._waiting: deque[bytes] = deque()
        self._unacknowledged: deque[bytes] = deque()

    @property
    def sent(self) -> int:
        """Number of the last packet sent."""
        return self.acknowledged + len(self._unacknowledged)

    def append(self, packet: bytes, urgency: Urgency = Urgency.ITEM) -> None:
        """Queue a packet."""
        self._waiting.append(packet)
        self.urgency = max(self.urgency, urgency)
        self.bytes += len(packet)
        self.waiting_bytes += len(packet)

    def next_packets(self, bytes_target: int, bytes_max: int) -> tuple[int, list[bytes]]:
        """Number of the first, and the next packets: until they have `bytes_target`, which the last
        may exceed, so that a small packet before a large one needs no frame of its own. At most
        `bytes_max`, but always one if any waits."""
        first = self.sent + 1
        taken: list[bytes] = []
        size = 0
        while self._waiting and size < bytes_target:
            if taken and size + len(self._waiting[0]) > bytes_max:
                break
            packet = self._waiting.popleft()
            size += len(packet)
            taken.append(packet)
        self._unacknowledged.extend(taken)
        self.waiting_bytes -= size
        if not self._waiting:
            self.urgency = Urgency.PATIENT
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
        if again:
            self.urgency = max(self.urgency, Urgency.ITEM)
        self._unacknowledged.clear()
        return again

    def __len__(self) -> int:
        return len(self._waiting) + len(self._unacknowledged)


class OutChannel(msgspec.Struct):
    """Sending end of a channel."""

    number: int
    channel: Channel
    sequence: int = 0
    sent: int = 0
    taken: int = 0
    window: int = 0
    hungry: bool = False
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

    def is_hungry(self) -> bool:
        """Whether the receiver has found nothing after what was sent, or nothing was yet."""
        return self.window > 0 and self.sent == self.taken and (self.hungry or not self.sent)

    def credit(self, packet: Credit) -> bool:
        """Note the receiver's totals; False if they are impossible. Older ones change nothing."""
        if packet.taken > self.sent:
            return False
        if packet.taken >= self.taken:
            self.taken, self.window, self.hungry = packet.taken, packet.window, packet.hungry
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
    hungry: bool = False
    """The task has found nothing after what was taken, as last reported to the sender."""

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
        Sooner would cost more messages, for which batches do not wait. None more: nothing
        waits for the task, so whoever has more should hear of that."""
        was_hungry, self.hungry = self.hungry, not segments
        if self.hungry:
            return not was_hungry or self.announced != self.taken
        self.taken += segments
        return self.announced < 0 or self.taken - self.announced > min(window, self.granted) // 2
