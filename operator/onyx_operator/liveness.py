"""Whether the operator moves: what `/livez` and `/readyz` say.

A process that answers HTTP proves little, so two things must move: the event loop (a beat every
second), and each watch. A watch may die without an error: `behind` is set when a list shows a
change of which the watch had no event. The kubelet's restart mends both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

BEAT_INTERVAL_S = 1.0


class OperatorLiveness:
    """Written by the event loop, read by the threads of the pages.

    Args:
        stalled_after_s: without a beat for so long, or behind for so long, the operator is dead.
        monotonic_s: the clock.
    """

    def __init__(
        self, stalled_after_s: float, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._stalled_after_s = stalled_after_s
        self._monotonic_s = monotonic_s
        self._beat_s = monotonic_s()
        self._behind_since_s: dict[str, float] = {}
        self._ready = False

    def alive(self) -> bool | str:
        """True while the loop and all watches move; else what does not."""
        since_s = {"the event loop": self._beat_s, **self._behind_since_s}
        stalled_s = self._monotonic_s() - self._stalled_after_s
        stalled = sorted(name for name, each_s in since_s.items() if each_s <= stalled_s)
        return f"stalled: {', '.join(stalled)}" if stalled else True

    def ready(self) -> bool | str:
        """True when it answers requests, whatever the watches do; else what is missing."""
        if not self._ready:
            return "the handlers have not started"
        stalled = self._monotonic_s() - self._beat_s >= self._stalled_after_s
        return "stalled: the event loop" if stalled else True

    def started(self) -> None:
        """The handlers have started."""
        self._ready = True

    def behind(self, watch: str, behind: bool) -> None:
        """Whether a watch (or a task that must never end) owes something."""
        if behind:
            self._behind_since_s.setdefault(watch, self._monotonic_s())
        else:
            self._behind_since_s.pop(watch, None)

    async def beat(self) -> None:
        """Prove for ever that the event loop moves."""
        while True:
            self._beat_s = self._monotonic_s()
            await asyncio.sleep(BEAT_INTERVAL_S)
