"""How long tests wait for what has to come."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

WAIT_S = 240.0
"""What takes longer hangs, however busy the machine is. No test passes by waiting for so long."""
ROUNDS = 100
MOMENT_S = 0.001


def rounds() -> Iterator[None]:
    """Rounds of something that is driven by hand while a thread works beside it: some without a
    rest, then each a moment after the other, because the thread may not get to run for a while."""
    for _ in range(ROUNDS):
        yield
    pause, ends_s = threading.Event(), time.monotonic() + WAIT_S
    while time.monotonic() < ends_s:
        pause.wait(MOMENT_S)
        yield
