"""The seams through which time and randomness enter, so that tests and the simulator own both."""

from __future__ import annotations

import random
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds. Wall clock time is used for the timers of users' triggers, which outlive a
    process, and for no decision of our own."""

    def monotonic_s(self) -> float: ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump."""
        ...


class SystemClock:
    """The clock of the operating system; it goes on while a process is stopped by SIGSTOP."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "monotonic time never goes back"
        self.now_s += seconds


class Randomness(Protocol):
    """The three draws that Onyx needs; `random.Random` has them."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...

    def getrandbits(self, bits: int, /) -> int: ...


def system_randomness() -> Randomness:
    """A generator seeded by the operating system (ids and back-off, nothing secret)."""
    return random.Random()  # noqa: S311
