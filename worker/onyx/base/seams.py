"""The seams through which time and randomness enter, so that tests and the simulator own both."""

from __future__ import annotations

import random
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds. Wall clock time is used for the timers of users' triggers, which outlive a
    process, and for no decision of our own."""

    def monotonic_s(self) -> float:
        """Seconds from some moment on; never goes back."""
        ...

    def thread_cpu_s(self) -> float:
        """Seconds that a processor has worked for the calling thread; some 0.5 us to ask."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""
        ...


class SystemClock:
    """The clock of the operating system; it goes on while a process is stopped by SIGSTOP."""

    monotonic_s = staticmethod(time.monotonic)
    """Seconds from some moment on; never goes back. Not a method around it, which would take as
    long again: a batch asks often."""

    def thread_cpu_s(self) -> float:
        """Seconds that a processor has worked for the calling thread; some 0.5 us to ask."""
        return time.thread_time()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""
        return time.time_ns() // 1_000_000


class Randomness(Protocol):
    """The two draws that Onyx needs; `random.Random` has them."""

    def random(self) -> float:
        """A number from 0 up to, not including, 1."""
        ...

    def getrandbits(self, bits: int, /) -> int:
        """An integer of `bits` random bits."""
        ...


def system_randomness() -> Randomness:
    """A generator seeded by the operating system (ids and back-off, nothing secret)."""
    return random.Random()  # noqa: S311
