"""The events of one incarnation, in order: a bounded queue that any thread may write to.

Callbacks of the log, timers, tasks and the transport post; the group's thread takes. A full queue
holds the thread that posts, which is how a group that cannot keep up slows down what feeds it.
Dropping was rejected: an entry of the log that is not applied makes the replica wrong.
"""

from __future__ import annotations

import logging
import queue
import threading

import msgspec

from onyx.errors import InvariantViolated, describe
from onyx.peer.events import Event

logger = logging.getLogger("onyx.peer")

POST_PATIENCE_S = 1.0
"""A thread that waits for room looks this often whether the incarnation still lives."""


class _Crash(msgspec.Struct, frozen=True):
    """A thread has ended because of a bug: this process cannot go on."""

    reason: str


class EventQueue:
    """Post from any thread; `next` only on the group's thread."""

    def __init__(self, events_max: int) -> None:
        """Above `events_max` events whoever posts waits."""
        self._events: queue.Queue[Event | _Crash] = queue.Queue(events_max)
        self._timers: list[threading.Timer] = []
        self._closed = False

    def post(self, event: Event) -> None:
        """Queue an event. Waits while the queue is full; drops the event after `close`."""
        self._put(event)

    def post_after(self, delay_s: float, event: Event) -> None:
        """Post an event after `delay_s` seconds. Only on the group's thread."""
        timer = threading.Timer(delay_s, self.post, (event,))
        timer.daemon = True
        timer.start()
        self._timers = [each for each in self._timers if each.is_alive()]
        self._timers.append(timer)

    def crash(self, error: BaseException) -> None:
        """A thread of this incarnation has ended because of a bug: `next` raises."""
        self._put(_Crash(f"a thread of the group has ended: {describe(error)}"))

    def next(self, timeout_s: float) -> Event | None:
        """The oldest event; None when none comes within `timeout_s`.

        Raises:
            InvariantViolated: a thread of the incarnation has crashed.
        """
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(event, _Crash):
            raise InvariantViolated(event.reason)
        return event

    def close(self) -> None:
        """Release the threads that wait for room. Timers that have not elapsed are cancelled."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()

    def _put(self, event: Event | _Crash) -> None:
        while not self._closed:
            try:
                self._events.put(event, timeout=POST_PATIENCE_S)
                return
            except queue.Full:
                logger.warning("%d events wait for the group's thread", self._events.maxsize)
