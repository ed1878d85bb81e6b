"""The one thread on which all callbacks of a log run, one at a time, in order, with timers.

What reads a socket must not wait for a callback, and a callback must not run beside another one. So
whoever hears something only puts a call here.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("onyx.log")
JOIN_TIMEOUT_S = 5.0


class Loop:
    """A daemon thread with a queue of calls."""

    def __init__(self, name: str) -> None:
        # Whoever calls must not block, so it has no limit of its own: answers and watches of at
        # most the requests under way, and one delivery for each of them.
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._timers: list[_Timer] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the thread, after what was put here before. Never blocks."""
        self._calls.put(function)

    def every(self, interval_s: float, function: Callable[[], None]) -> Callable[[], None]:
        """Run `function` on the thread at this period until the returned function is called."""
        timer = _Timer(interval_s, function, time.monotonic() + interval_s)
        self.call(lambda: self._timers.append(timer))
        return lambda: self.call(lambda: self._timers.remove(timer))

    def later(self, delay_s: float, function: Callable[[], None]) -> None:
        """Run `function` on the thread once, after so long."""

        def run() -> None:
            stop()
            function()

        stop = self.every(delay_s, run)

    def is_current_thread(self) -> bool:
        """Whether the caller runs on this thread, where nothing may wait for the log."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Run what was put here before and end."""
        self._calls.put(None)
        if not self.is_current_thread():
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            due_s = min((timer.due_s for timer in self._timers), default=None)
            wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
            try:
                function = self._calls.get(timeout=wait_s)
            except queue.Empty:
                self._run_timers()
                continue
            if function is None:
                return
            _guarded(function)
            self._run_timers()

    def _run_timers(self) -> None:
        now_s = time.monotonic()
        for timer in tuple(self._timers):
            if timer.due_s <= now_s:
                timer.due_s = now_s + timer.interval_s
                _guarded(timer.function)


class _Timer:
    def __init__(self, interval_s: float, function: Callable[[], None], due_s: float) -> None:
        self.interval_s = interval_s
        self.function = function
        self.due_s = due_s


def _guarded(function: Callable[[], None]) -> None:
    """One listener's mistake must not silence the log for the others."""
    try:
        function()
    except Exception:
        logger.exception("a callback of the log failed; this is a bug in Onyx, please report it")
