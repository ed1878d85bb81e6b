"""The packets of one direction of a link: those that wait, and those not acknowledged yet.

Invariant: packets of a session are numbered from 1 without a gap, and each stays here until the
other side has acknowledged its number. A new stream sends again what is not acknowledged, and the
receiver drops numbers that it has. So each packet arrives once and in order, over any number of
streams. Why replay by the ledger does not make this needless: docs/decisions/0028.

One numbering serves all packets: batches, control items, acks, completions and credit. Rejected: a
numbering for each channel, which needs as many cumulative acknowledgements, and one more for every
packet that belongs to no channel.
"""

from __future__ import annotations

from collections import deque

from onyx.transport.pacing import Urgency


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
