"""A thread that has a source hear now and then what is worked on."""

from __future__ import annotations

import threading
from collections.abc import Callable

PART_OF_LEASE = 6
END_TIMEOUT_S = 2.0


class Lease:
    """Renews some times within each lease."""

    def __init__(self, renew: Callable[[float], None], name: str) -> None:
        """`renew` is called on the thread, with how long a lease is in seconds."""
        self._renew = renew
        self._lease_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def follow(self, lease_s: float) -> None:
        """A lease is so long from now on."""
        self._lease_s = lease_s
        if not self._thread.is_alive() and not self._ended.is_set():
            self._thread.start()

    def end(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(END_TIMEOUT_S)

    def _run(self) -> None:
        while not self._ended.wait(self._lease_s / PART_OF_LEASE):
            self._renew(self._lease_s)
