"""What has been said about trees that somebody works on, until the one who counts has time for it.

Whoever begins trees may be in a function that takes an hour, while the others go on saying what
they work on. Then the newest messages stay: each says all that one peer holds, and older ones have
been followed by newer ones of the same peer. Any thread may add, one takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from onyx.base.runs import Numbers, Run

WAITING_MAX = 256
"""Messages; of a job with more peers that work for long, some of its segments may be read again."""


class Holds:
    """The holds of one input, windowed task or acker on one peer."""

    def __init__(self) -> None:
        self._waiting: deque[Numbers] = deque(maxlen=WAITING_MAX)

    def add(self, roots: Numbers) -> None:
        """Somebody works on these trees."""
        self._waiting.append(roots)

    def take(self) -> Iterator[Numbers]:
        """All that waits, each message as increasing roots."""
        while self._waiting:
            roots = self._waiting.popleft()
            yield roots if isinstance(roots, Run) else np.unique(roots)
