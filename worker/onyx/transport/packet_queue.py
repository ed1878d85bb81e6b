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


class PacketQueue:
    """Plain state, without threads, clock or network."""

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
        """Queue a packet. `urgent`: do not wait for others that fill its frame."""
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
