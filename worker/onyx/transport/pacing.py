"""When the next frame of a stream is due: the trade of latency against CPU, and nothing else.

A gRPC message costs up to 500 us of CPU at both ends together, whatever its size, nearly all of it
in threads that wake each other. So frames are few, and each carries what has gathered:

* A batch waits for company after a frame, the longer the more that one carried: a stream of single
  segments hardly waits, one of whole batches up to `PAUSE_MAX_S`.
* A batch whose sender has the next one in hand waits for that, for at most `GATHER_MAX_S`. This
  does what no pause can, for batches take milliseconds to make, and longer on a busy machine.
* A FLUSH ends these waits: its sender has sent half of what may be in flight, and may soon have
  nothing to do. So does a sender that is refused: it waits for what is to go.
* Replies (completions, acks that a flush has asked for) go with the next batch, or alone if there
  was no frame for `REPLY_PAUSE_S`: they come from several tasks about the same segments.
* What holds nobody up (other acks, credit) goes along, or alone after `PATIENCE_S`.

After a silence everything goes at once, unless more is said to follow.

A fixed pause was rejected: one long enough to gather batches that take milliseconds to make would
delay single segments by as much. So was a larger frame alone: batches do not come fast enough.
"""

from __future__ import annotations

import enum
import math

PAUSE_MIN_S = 0.0005
PAUSE_MAX_S = 0.005
PAUSE_S_PER_BYTE = 1e-7
"""A batch of 500 small segments (20 kB) is followed by a pause of 2 ms."""
GATHER_MAX_S = 0.02
REPLY_PAUSE_S = 0.003
PATIENCE_S = 0.01
"""An input waits for acks once half of its `maxPending` is in flight, and then they are urgent."""


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
