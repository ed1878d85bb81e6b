"""One link: everything between this group and one other, over any number of streams.

A stream is one gRPC call; a link outlives its streams. Each stream begins with a hello, in which
each side says how many packets it has received; what is missing is sent again (`PacketQueue`).

Invariant: while both groups keep their link, each packet is delivered once and in order. A group
drops its link when the two share no job. If they share one again, the hello has a new link id. The
other side then starts afresh as well: packets in flight belonged to an allocation version that is
over, and acks that were handled before must not be handled again.

Threads. Senders call `send*` from any thread (one thread at a time for each channel). One writer
takes frames and one reader brings them; a stream that has been replaced is ignored. `_lock` guards
all state, also that of both halves. `_delivering` makes delivery exclusive and is taken before
`_lock`. Inboxes, handlers and `room` are called without `_lock`: they may send, but not attach or
receive.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

from onyx.settings import FRAME_OVERHEAD_BYTES, Compression
from onyx.transport.counters import Counters
from onyx.transport.frames import decoder, encoder
from onyx.transport.frames.compression import READ, agreed, compressed, plain
from onyx.transport.frames.packets import (
    Acks,
    Close,
    Completions,
    Credit,
    Frame,
    FrameError,
    Held,
    Hello,
    Item,
    Open,
    Packet,
    Returns,
    Schema,
)
from onyx.transport.hello import Ends, Stream, Surroundings
from onyx.transport.inbox import BoundedInbox, hurries, weight
from onyx.transport.interface import Channel, Control, LookUp, LookUpAnswer, Sendable
from onyx.transport.pieces import encoded_pieces
from onyx.transport.receiving import Receiving
from onyx.transport.sending import Pace, Sending, Urgency

ACKNOWLEDGE_SHARE = 4
"""Packets are acknowledged at least every 1/4 of what the sender may hold, else by heartbeat."""


class Link:
    """The streams of this group to one other group."""

    def __init__(self, ends: Ends, around: Surroundings) -> None:
        self.ends = ends
        self.counters = Counters()
        self._around = around
        self._settings = around.settings
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._delivering = threading.Lock()
        self._id = around.nonce()
        self._id_there = 0
        self._sending = Sending(
            around.nonce(), self._settings, self.counters, due_sooner=self._wake_writer
        )
        self._receiving = Receiving(
            self._lock, around.inboxes, self.counters, append=self._sending.append
        )
        self._stream: Stream | None = None
        self._last_heard_s = around.clock.monotonic_s()
        self._pace = Pace(self._settings.frame_bytes_target, self._settings.heartbeat_interval_s)
        self._asleep_until_s = -math.inf
        """When the writer wakes up by itself; it is awake if that is past."""
        self._codec: Compression = "none"
        self._unannounced_bytes = 0
        self._announce_bytes = self._settings.link_bytes_max // ACKNOWLEDGE_SHARE

    # Sending

    def send(self, channel: Channel, item: Sendable, more: bool = False) -> bool:
        """Queue an item, or refuse it for now. `more`: another is about to follow.

        Raises:
            SegmentError: a segment cannot be encoded, or one alone does not fit in a frame.
        """
        with self._lock:
            out = self._sending.admit(channel, weight(item))
        if out is None:
            return False
        # Encoded without the lock, which takes long: one thread sends on a channel at a time, so
        # nothing of this channel can be queued in between. `queue` looks again whether it is open.
        if isinstance(item, Control):
            urgency = Urgency.FLUSH if hurries(item) else Urgency.ITEM
            with self._lock:
                return self._sending.queue(out, (item,), urgency)
        pieces = list(encoded_pieces(item, self._settings.frame_bytes_max))
        with self._lock:
            return self._sending.queue(out, pieces, Urgency.GATHER if more else Urgency.ITEM)

    def is_hungry(self, channel: Channel) -> bool:
        """Whether the receiver has taken all that was sent on the channel, and found no more."""
        with self._lock:
            return self._sending.is_hungry(channel)

    def send_packets(
        self, packets: list[bytes], urgent: bool = False, bounded: bool = True
    ) -> bool:
        """Queue acks or completions, all or none.

        Args:
            urgent: somebody may be held up by them.
            bounded: they are refused by a link that is full.
        """
        with self._lock:
            if self._sending.closed or (bounded and self._sending.full()):
                self._sending.refuse()
                return False
            for packet in packets:
                self._sending.append(packet, Urgency.REPLY if urgent else Urgency.PATIENT)
        return True

    # Streams

    def hello(self) -> bytes:
        """What this side says first on a stream."""
        with self._lock:
            hello = Hello(
                tenancy=self.ends.tenancy,
                group=self.ends.here,
                target=self.ends.there,
                link=self._id,
                session=self._sending.packets.session,
                heard_session=self._receiving.session,
                received=self._receiving.received,
                link_bytes_max=self._settings.link_bytes_max,
                machine=self._around.machine,
                codecs=READ,
            )
        return encoder.hello_frame(hello)

    def attach(self, stream: Stream, hello: Hello) -> bool:
        """Let the stream carry the link, after the other side's hello. False if a new session was
        started here, which the other side must learn from one more hello.

        Raises:
            FrameError: the hello is impossible.
        """
        # `_delivering` too, so that the reader of the former stream is between two frames: it
        # handles packets without `_lock`, and their numbering must not change meanwhile.
        with self._delivering, self._lock:
            if self._sending.closed:
                raise FrameError(f"the link with group {hello.group} is closed")
            same_session = self._agree(hello)
            replaced, self._stream = self._stream, stream
            self._last_heard_s = self._around.clock.monotonic_s()
            self._pace.restart()
            self._codec = agreed(self._settings.compression, self._around.machine, hello)
            self._announce_bytes = max(1, hello.link_bytes_max // ACKNOWLEDGE_SHARE)
            self._work.notify_all()
        if replaced is not None and replaced is not stream:
            replaced.close()
        self._around.room()
        return same_session

    def _agree(self, hello: Hello) -> bool:
        """Bring both numberings in line with the other side; False after a new session here."""
        sending = self._sending
        self.counters.connects += 1
        if self._receiving.agree(hello.session):
            self.counters.reconnects += 1
        forgotten = self._id_there not in (0, hello.link)
        self._id_there = hello.link
        # A count of another session of ours says nothing of the packets of this one.
        received = hello.received if hello.heard_session == sending.packets.session else 0
        if forgotten or received < sending.packets.acknowledged:
            sending.restart(self._around.nonce())
            return False
        sending.resume(received)
        return True

    def detach(self, stream: Stream) -> None:
        """The stream has ended."""
        stream.close()
        with self._lock:
            if self._stream is stream:
                self._stream = None
                self.counters.broken_streams += 1
            self._work.notify_all()

    def note_bad_frame(self) -> None:
        """Count a frame that closed its stream."""
        with self._lock:
            self.counters.bad_frames += 1

    def connected(self) -> bool:
        """Whether a stream carries the link now."""
        return self._stream is not None

    def silent_s(self) -> float:
        """Seconds since anything was heard from the other group (or since the link was made)."""
        return self._around.clock.monotonic_s() - self._last_heard_s

    def break_if_silent(self) -> None:
        """Close a stream on which nothing has come for longer than the heartbeat timeout."""
        stream = self._stream
        silent_s = self.silent_s()
        if stream is not None and silent_s > self._settings.heartbeat_timeout_s:
            stream.reason = f"nothing was heard for {silent_s:.1f} s"
            self.detach(stream)

    def close(self) -> None:
        """The groups share no job any more. What waits is dropped."""
        with self._lock:
            stream, self._stream = self._stream, None
            self._sending.close()
            self._receiving.forget()
            self._work.notify_all()
        if stream is not None:
            stream.close()

    # Writing

    def outgoing(self, stream: Stream) -> Iterator[bytes]:
        """Frames for a stream, for as long as it carries the link. Blocks between frames; ends
        when the stream is closed or replaced."""
        while True:
            with self._lock:
                self._sleep(stream)
                if self._over(stream):
                    return
                first, packets = self._sending.packets.next_packets(
                    self._settings.frame_bytes_target,
                    self._settings.frame_bytes_max - FRAME_OVERHEAD_BYTES,
                )
                received = self._receiving.received
                self._unannounced_bytes = 0
                size = sum(map(len, packets))
                left = self._sending.packets.waiting_bytes > 0
                self._pace.sent(self._around.clock.monotonic_s(), size, left)
                self.counters.sent_frames += 1
                self.counters.sent_packets += len(packets)
                codec = self._codec
            data = compressed(encoder.frame(first, received, packets), codec)
            with self._lock:
                self.counters.sent_bytes += len(data)
            yield data

    def _over(self, stream: Stream) -> bool:
        # None may stand before `attach`: the writer has begun, and the other hello is under way.
        replaced = self._stream not in (stream, None)
        return replaced or stream.closed.is_set() or self._sending.closed

    def _sleep(self, stream: Stream) -> None:
        """Sleep, with the lock released, until there is a frame to send or the stream is over."""
        while not self._over(stream):
            now_s = self._around.clock.monotonic_s()
            wait_s = self._settings.heartbeat_interval_s
            if self._stream is stream:
                wait_s = self._wait_s(now_s)
                if wait_s <= 0:
                    break
                wait_s = self._pace.sleep_s(now_s, wait_s)
            self._asleep_until_s = now_s + wait_s
            self._work.wait(wait_s)
        self._asleep_until_s = -math.inf

    def _wait_s(self, now_s: float) -> float:
        queue = self._sending.packets
        unannounced = self._unannounced_bytes >= self._announce_bytes
        return self._pace.wait_s(now_s, queue.waiting_bytes, queue.urgency, unannounced)

    def _wake_writer(self) -> None:
        """Unless it sleeps no longer than until the next frame is due anyway."""
        now_s = self._around.clock.monotonic_s()
        self._pace.queued(now_s)
        if now_s + self._wait_s(now_s) < self._asleep_until_s:
            self._work.notify()

    # Receiving

    def receive(self, stream: Stream, data: bytes) -> None:
        """Take a frame that came on a stream.

        Raises:
            FrameError: it is corrupt or not the one that is due; the stream must be closed.
        """
        frame_bytes_max = self._settings.frame_bytes_max
        whole = plain(data, frame_bytes_max)
        frame = decoder.decode(whole, frame_bytes_max)
        if isinstance(frame, Hello):
            raise FrameError("a hello came on a stream that has begun")
        with self._delivering:
            with self._lock:
                if self._stream is not stream:
                    return
                self.counters.received_bytes += len(data)
                room = self._note(frame, len(whole))
            if room:
                self._around.room()
            for number, packet in enumerate(frame.packets, frame.first):
                if number <= self._receiving.received:
                    self.counters.dropped_repeats += 1
                    continue
                if number != self._receiving.received + 1:
                    due = self._receiving.received + 1
                    raise FrameError(f"packet {number} came where {due} was due")
                # In this order: a packet counts as received only when it has been handled. If
                # handling it raises, the other side sends it again.
                self._handle(packet)
                self._receiving.received = number

    def _note(self, frame: Frame, size: int) -> bool:
        """Account for a frame of so many bytes, as its sender holds them, decompressed; True if a
        sender that was refused may try again."""
        self._last_heard_s = self._around.clock.monotonic_s()
        self.counters.received_frames += 1
        self.counters.received_packets += len(frame.packets)
        if frame.packets:
            self._unannounced_bytes += size
            if self._unannounced_bytes >= self._announce_bytes:
                self._wake_writer()
        return self._sending.acknowledge(frame.received)

    def _handle(self, packet: Packet) -> None:
        handlers = self._around.handlers
        room = False
        match packet:
            case Item():
                self._receiving.deliver(packet)
            case Acks(job, version, acker, roots, values):
                handlers.on_acks(job, version, acker, roots, values)
            case Completions(job, version, target, roots, retries_max):
                handlers.on_completions(job, version, target, roots, retries_max)
            case Held(job, version, target, roots):
                handlers.on_held(job, version, target, roots)
            case Returns(job, version, target, trees, to_acker):
                handlers.on_returns(job, version, target, trees, to_acker)
            case LookUp() | LookUpAnswer():
                handlers.on_lookup(packet)
            case Credit():
                with self._lock:
                    room = self._sending.credit(packet)
            case Open():
                with self._lock:
                    self._receiving.open(packet)
            case Schema():
                with self._lock:
                    self._receiving.take_schema(packet)
            case Close():
                with self._lock:
                    self._receiving.close(packet)
        if room:
            self._around.room()

    def inbox_opened(self, inbox: BoundedInbox) -> None:
        """Grant credit to the senders that came before this inbox."""
        with self._lock:
            self._receiving.inbox_opened(inbox)

    def inbox_closed(self, inbox: BoundedInbox) -> None:
        """Drop what still arrives for this inbox."""
        with self._lock:
            self._receiving.inbox_closed(inbox)
