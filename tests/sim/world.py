"""Virtual time and the seeded scheduler: one heap of events, one derived stream a purpose.

Every source of randomness is `random.Random(f"{seed}/{purpose}")` (seeded by SHA-512 of the text,
so the same under every hash seed): a fault family that draws more does not reshuffle the others.
The trace is hashed as it grows; two runs of one seed must end with the same hash.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

TRACE_SHOWN = 50


class World:
    """The clock, the agenda and the trace of one run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_s = 0.0
        self.steps = 0
        self.recent: deque[str] = deque(maxlen=TRACE_SHOWN)
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def stream(self, purpose: str) -> random.Random:
        return random.Random(f"{self.seed}/{purpose}")

    def after(self, delay_s: float, action: Callable[..., None], *args: Any) -> None:
        """Put an event on the agenda. Events of one moment run in the order of their making."""
        self._count += 1
        heapq.heappush(self._agenda, (self.now_s + delay_s, self._count, action, args))

    def step(self) -> bool:
        """Run the next event; False when there is none."""
        if not self._agenda:
            return False
        self.now_s, _, action, args = heapq.heappop(self._agenda)
        self.steps += 1
        action(*args)
        return True

    def log(self, *what: Any) -> None:
        """Add to the trace."""
        line = f"{self.now_s:.6f} {' '.join(map(str, what))}"
        self.recent.append(line)
        self._hash.update(line.encode())

    def trace_hash(self) -> str:
        return self._hash.hexdigest()
