"""Which Events are posted about objects: what repeats is one Event with a count. Pure but for its
memory, which is bounded.

A job whose workers die again and again changes its reason with each death. An Event for each change
would hide all others of the object, and load the API server. So an Event of the same reason and
message is posted again with a count: at the second time, the fourth, the eighth, and whenever a
minute has passed. After many messages of one reason the others become one Event, which has the
newest message. These are the rules of client-go, with fewer requests; its limit on all Events of an
object was rejected, because it drops what happens first after a flood.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import msgspec

SERIES_MAX = 4_000
"""Series that are remembered, the newest ones; one that is forgotten begins again."""
WINDOW_S = 600.0
"""What comes again after a longer silence is a new Event."""
POST_INTERVAL_S = 60.0
SIMILAR_MAX = 20
"""Different messages of one reason about one object within the window; a cluster makes a dozen
objects at once."""
COMBINED = "(combined from similar events) "


class RepeatedEvent(msgspec.Struct):
    """One Event of Kubernetes, with how often it has happened."""

    first_s: float
    """Seconds since the epoch."""
    last_s: float
    message: str
    count: int = 0
    name: str = ""
    """Name of the object in the API server; empty until that has answered."""
    posted_s: float = 0.0


class EventSeries:
    """The series of everything that one operator reports. Belongs to one event loop."""

    def __init__(self) -> None:
        self._series: OrderedDict[Hashable, RepeatedEvent] = OrderedDict()
        self._similar: OrderedDict[Hashable, OrderedDict[str, float]] = OrderedDict()

    def next(self, about: Hashable, message: str, now_s: float) -> RepeatedEvent | None:
        """The Event to create (without a name) or to change; None if nothing is to be posted.

        Args:
            about: the object, the reason and the type.
            message: in words.
            now_s: seconds since the epoch.
        """
        combined = self._is_similar(about, message, now_s)
        key = (about, None if combined else message)
        found = self._series.get(key)
        if found is None or now_s - found.last_s >= WINDOW_S:
            found = self._series[key] = RepeatedEvent(now_s, now_s, message)
        self._series.move_to_end(key)
        while len(self._series) > SERIES_MAX:
            self._series.popitem(last=False)
        found.count += 1
        found.last_s = now_s
        found.message = f"{COMBINED}{message}" if combined else message
        is_power = found.count & (found.count - 1) == 0
        if not is_power and now_s - found.posted_s < POST_INTERVAL_S:
            return None
        found.posted_s = now_s
        return found

    def _is_similar(self, about: Hashable, message: str, now_s: float) -> bool:
        """Whether the object has had too many other messages of this reason lately."""
        known = self._similar.setdefault(about, OrderedDict())
        self._similar.move_to_end(about)
        while len(self._similar) > SERIES_MAX:
            self._similar.popitem(last=False)
        for old in [each for each, last_s in known.items() if now_s - last_s >= WINDOW_S]:
            del known[old]
        if message not in known and len(known) >= SIMILAR_MAX:
            return True
        known[message] = now_s
        return False
