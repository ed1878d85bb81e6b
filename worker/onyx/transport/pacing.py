"""When the next frame of a stream is due: the trade of latency against CPU, and nothing else.

A gRPC message costs up to 500 us of CPU at both ends together, whatever its size, nearly all of it
in threads that wake each other. So a frame that is not full waits for company after the one before,
the longer the more that one carried: a stream of single segments hardly waits, one of whole batches
up to `PAUSE_MAX_S`. What holds nobody up (acks, credit) does not hurry: it goes along with the next
batch, or alone after `PATIENCE_S`. After a silence everything goes at once.

A fixed pause was rejected: one long enough to gather batches that take milliseconds to make would
delay single segments by as much. So was a larger frame alone: batches do not come fast enough.
"""

from __future__ import annotations

import math

PAUSE_MIN_S = 0.0005
PAUSE_MAX_S = 0.003
PAUSE_S_PER_BYTE = 1e-7
"""A batch of 500 small segments (20 kB) is followed by a pause of 2 ms."""
PATIENCE_S = 0.01
"""An input waits for acks once half of its `maxPending` is in flight, and then they are urgent."""


class Pace:
    """Of the frames of one stream after the other. Times are monotonic seconds."""

    def __init__(self, frame_bytes_target: int, heartbeat_interval_s: float) -> None:
        self._full_bytes = frame_bytes_target
        self._heartbeat_interval_s = heartbeat_interval_s
        self._sent_s = -math.inf
        self._pause_s = PAUSE_MIN_S

    def restart(self) -> None:
        """A new stream: nothing was sent on it yet."""
        self._sent_s = -math.inf

    def sent(self, now_s: float, size: int) -> None:
        """A frame with so many bytes of packets goes out."""
        self._sent_s = now_s
        self._pause_s = min(PAUSE_MAX_S, max(PAUSE_MIN_S, size * PAUSE_S_PER_BYTE))

    def resting(self, now_s: float) -> bool:
        """Whether the writer sleeps through the pause after a large frame and looks at what waits
        by itself. It is woken only for a full frame: more is likely to come, and to be woken for it
        costs more than to wake up for nothing."""
        return self._pause_s > PAUSE_MIN_S and now_s - self._sent_s < self._pause_s

    def wait_s(self, now_s: float, waiting_bytes: int, urgent: bool, patient: bool) -> float:
        """Seconds until the writer has to look again; zero or less if a frame is due now.

        Args:
            waiting_bytes: of all packets that wait.
            urgent: one of them is urgent.
            patient: something is to be sent that can wait: a packet, or how much was received.
        """
        if waiting_bytes >= self._full_bytes:
            return 0.0
        since_s = now_s - self._sent_s
        if urgent or self.resting(now_s):
            return self._pause_s - since_s
        return (PATIENCE_S if patient else self._heartbeat_interval_s) - since_s
