"""A clock for tests, which stands still until a test advances it."""

from __future__ import annotations


class ManualClock:
    """A `Clock` whose time changes only in `advance`."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def monotonic_s(self) -> float:
        """Seconds that were advanced, and those of the beginning."""
        return self.now_s

    def thread_cpu_s(self) -> float:
        """The same: nothing interrupts a test."""
        return self.now_s

    def wall_ms(self) -> int:
        """The same in milliseconds."""
        return int(self.now_s * 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass; `seconds` are not negative, because monotonic time never goes back."""
        assert seconds >= 0, "monotonic time never goes back"
        self.now_s += seconds
