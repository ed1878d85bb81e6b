"""The state of a group as plain Python has it: what a function with state is held to."""

from __future__ import annotations

from typing import Any

Due = tuple[str, int]
"""A clock, and when a timer is due by it."""


class PlainGroup:
    """Looks to a function like the state of its group. Nothing in it can fail."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.timers: dict[str, Due] = {}
        self.now_ms = 0
        self.event_time_ms: int | None = None
        self.ending = False
        self.clear()

    def clear(self) -> None:
        """All states are gone, and the timers are not."""
        self.count: int | None = None
        self.bits: int | None = None
        self.note: str | None = None
        self.seen: list[int] = []
        self.told: list[Any] = []
        self.rests: dict[int, int] = {}

    def states(self) -> dict[str, Any]:
        """Those that are there, by name."""
        found = {
            "count": self.count,
            "bits": self.bits,
            "note": self.note,
            "seen": self.seen,
            "told": self.told,
            "rests": self.rests,
        }
        return {name: each for name, each in found.items() if each not in (None, [], {})}

    def timer(self, name: str) -> int | None:
        found = self.timers.get(name)
        return None if found is None else found[1]

    def set_timer(self, name: str, at_ms: int, clock: str = "event-time") -> None:
        if not self.ending:
            self.timers[name] = (clock, at_ms)

    def delete_timer(self, name: str) -> None:
        self.timers.pop(name, None)
