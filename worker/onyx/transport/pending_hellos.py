"""Bounds the calls whose hello has not come yet. Anybody who reaches the port can make such calls.

A member sends its hello with the call, so a call that stays here is not from a member. When a new
call finds all places taken, the oldest one is cancelled. So a flood of calls shortens the time that
each caller has for its hello, and locks no member out. Refusing the newest call was rejected: a few
silent callers would then keep all members out.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

from onyx.telemetry.labels import Refusal

PENDING_MAX = 32
"""Calls at once; the first message of each may take as much memory as a frame."""
CANCELLED = "its hello did not come while others were waiting"


class PendingHellos:
    """The calls, and how many were refused. Safe to use from any thread."""

    def __init__(self, calls_max: int = PENDING_MAX) -> None:
        self._calls_max = calls_max
        self._lock = threading.Lock()
        self._waiting: OrderedDict[object, Callable[[], object]] = OrderedDict()
        self._refused: Counter[Refusal] = Counter()

    @contextlib.contextmanager
    def waiting(self, cancel: Callable[[], object]) -> Iterator[None]:
        """While the hello of a call has not come. `cancel` ends the call, from another thread."""
        me, oldest = object(), None
        with self._lock:
            if len(self._waiting) >= self._calls_max:
                _, oldest = self._waiting.popitem(last=False)
            self._waiting[me] = cancel
        if oldest is not None:
            oldest()
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(me, None)

    def count(self, refusal: Refusal) -> int:
        """One more call was refused for this reason; how many that makes."""
        with self._lock:
            self._refused[refusal] += 1
            return self._refused[refusal]

    def refused(self) -> Counter[Refusal]:
        """Calls refused since the start."""
        with self._lock:
            return self._refused.copy()
