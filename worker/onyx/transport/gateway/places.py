"""The calls of clients that are open at once, and the requests in them that wait for answers.

Anybody who reaches the port can open calls. A call in which no request waits is *idle*. When all
places are taken and another call comes, the one that has been idle longest is ended. So silent
calls shut nobody out; a client whose call is ended opens another with its next request. Refusing
the newest was rejected: a few silent callers would then keep all others out.

Requests are bounded by their bytes too, those of a call and those of all. A call may always have
one, so that the others cannot stop it; beyond that its client is read no further.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

CLIENT_CALLS_MAX = 128
"""Calls of clients, and of workers that hand requests over, at once."""
CALL_REQUESTS_MAX = 1_024
"""Requests of one call that wait for their answers; the call is read no further then."""
CALL_BYTES_MAX = 67_108_864
"""Bytes of the requests of one call that wait for their answers."""
BYTES_MAX = 268_435_456
"""Bytes of the requests of all calls that wait for their answers."""


class Place:
    """The place of one call."""

    def __init__(self, places: Places, cancel: Callable[[], object]) -> None:
        self._places = places
        self.cancel = cancel
        self.requests = 0
        self.bytes = 0

    def begin(self, size_bytes: int, timeout_s: float) -> bool:
        """Count a request that has come; False: there was no room for so long."""
        return self._places.begin(self, size_bytes, timeout_s)

    def end(self, size_bytes: int) -> None:
        """A request was answered."""
        self._places.end(self, size_bytes)

    def leave(self) -> None:
        """The call has ended, with all of its requests."""
        self._places.leave(self)


class Places:
    """The calls of one process. Safe to use from any thread."""

    def __init__(self, calls_max: int = CLIENT_CALLS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._calls_max = calls_max
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._idle: OrderedDict[Place, None] = OrderedDict()
        """Calls without a request, the one that is idle longest first."""
        self._busy: set[Place] = set()
        self._bytes = 0

    def enter(self, cancel: Callable[[], object]) -> Place | None:
        """A place for a call; None: all are taken, and in each call a request waits.

        Args:
            cancel: ends the call, from another thread.
        """
        oldest = None
        with self._changed:
            if len(self._idle) + len(self._busy) >= self._calls_max:
                if not self._idle:
                    return None
                oldest, _ = self._idle.popitem(last=False)
            place = Place(self, cancel)
            self._idle[place] = None
        if oldest is not None:
            oldest.cancel()
        return place

    def begin(self, place: Place, size_bytes: int, timeout_s: float) -> bool:
        """Count a request of a call, as `Place.begin` does."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._fits(place, size_bytes), timeout_s):
                return False
            place.requests += 1
            place.bytes += size_bytes
            self._bytes += size_bytes
            if place in self._idle:
                del self._idle[place]
                self._busy.add(place)
            return True

    def end(self, place: Place, size_bytes: int) -> None:
        """Count a request no more, as `Place.end` does."""
        with self._changed:
            if not place.requests:
                return  # the call has left
            place.requests -= 1
            place.bytes -= size_bytes
            self._bytes -= size_bytes
            if not place.requests and place in self._busy:
                self._busy.discard(place)
                self._idle[place] = None
            self._changed.notify_all()

    def leave(self, place: Place) -> None:
        """Give a place away, as `Place.leave` does."""
        with self._changed:
            self._idle.pop(place, None)
            self._busy.discard(place)
            self._bytes -= place.bytes
            place.requests, place.bytes = 0, 0
            self._changed.notify_all()

    def _fits(self, place: Place, size_bytes: int) -> bool:
        if not place.requests:
            return True
        return (
            place.requests < CALL_REQUESTS_MAX
            and place.bytes + size_bytes <= CALL_BYTES_MAX
            and self._bytes + size_bytes <= self._bytes_max
        )
