"""An event loop in virtual time, which runs only while it has its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from onyx.base.seams import Clock


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of one simulated process. It is its own selector, of no files."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._selector = self

    def running(self) -> VirtualLoop:
        """Itself, as a loop is asked for by those that are not on it (`onyx.base.event_loop`)."""
        return self

    def turn(self) -> None:
        """Do what can be done now."""
        while True:
            self.call_soon(self.stop)
            self.run_forever()
            if not self._ready:  # type: ignore[attr-defined]
                return

    def end(self) -> None:
        """Nobody waits any more. What ends may begin something else."""
        self.turn()
        while tasks := asyncio.all_tasks(self):
            for task in tasks:
                task.cancel()
            self.turn()
        self.close()

    def time(self) -> float:
        return self._clock.monotonic_s()

    def select(self, timeout: float | None) -> Sequence[Any]:
        return ()

    def _process_events(self, events: Sequence[Any]) -> None: ...

    def _write_to_self(self) -> None: ...
