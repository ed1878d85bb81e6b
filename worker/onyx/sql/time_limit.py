"""The time that a statement may take: a thread of the process ends those that take longer.

DuckDB looks whether it is interrupted between two steps, so a statement ends somewhat later. One
thread serves all engines, because one for each batch would cost more than many a batch. While no
statement runs it waits for one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

TIMEOUT_S = 60.0
"""How long a batch may take; a part of one that took longer gets its share."""
PART_TIMEOUT_S = 1.0
"""How long the smallest part may take."""
LOOK_INTERVAL_S = 0.2


class TimeLimit:
    """The limit of one engine, for one statement at a time."""

    def __init__(self) -> None:
        self._interrupt: Callable[[], object] | None = None
        self._ends_s = 0.0

    def begin(self, timeout_s: float, interrupt: Callable[[], object]) -> None:
        """A statement begins, which `interrupt` ends from another thread."""
        _watch.start()
        with _watch.lock:
            self._interrupt = interrupt
            self._ends_s = time.monotonic() + timeout_s
            _watch.running.add(self)
            if not _watch.awake.is_set():
                _watch.awake.set()

    def end(self) -> None:
        """It has ended; what is interrupted from now on is not it."""
        with _watch.lock:
            self._interrupt = None
            _watch.running.discard(self)

    def look(self, now_s: float) -> None:
        """End the statement if its time is over. The lock is held."""
        if self._interrupt is not None and now_s >= self._ends_s:
            self._interrupt()


class _Watch:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: set[TimeLimit] = set()
        self.awake = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """A process that was forked has to start its own."""
        if self._thread is None or not self._thread.is_alive():
            with self.lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(
                        target=self._look, name="onyx-sql-time", daemon=True
                    )
                    self._thread.start()

    def _look(self) -> None:
        while True:
            self.awake.wait()
            time.sleep(LOOK_INTERVAL_S)
            with self.lock:
                for each in self.running:
                    each.look(time.monotonic())
                if not self.running:
                    self.awake.clear()


_watch = _Watch()
