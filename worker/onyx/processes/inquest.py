"""How a worker process has died: what it was doing, what the kernel says, who is told.

Used by the thread of the supervisor alone, except for `close`.
"""

from __future__ import annotations

import logging
import socket

from onyx.base.seams import SystemClock
from onyx.processes import losses
from onyx.processes.child import Child
from onyx.processes.deaths import DeathWatch
from onyx.processes.obituaries import Obituaries
from onyx.settings import Settings
from onyx.telemetry.memory_kills import MemoryKills

logger = logging.getLogger("onyx.supervisor")


class Inquest:
    """The deaths under one supervisor."""

    def __init__(self, settings: Settings) -> None:
        self._obituaries = Obituaries(settings)
        self._deaths = DeathWatch(
            MemoryKills(), SystemClock(), settings.supervisor, socket.gethostname()
        )

    def close(self) -> None:
        """Report what is not reported yet, and end."""
        self._obituaries.close()

    def look_at_others(self) -> str:
        """Report deaths in this container that were of no worker; why it has been too many deaths,
        or empty."""
        for death in self._deaths.others():
            logger.warning(
                "a process of this container was killed that is no worker process, such as a JVM "
                "of Spark: %s",
                self._deaths.explained(death),
            )
            self._obituaries.announce(death)
        return self._deaths.too_many() or ""

    def examine(self, child: Child, code: int, memory_bytes: int, lived_s: float) -> str:
        """How a process ended, in words, reported to the cluster. What it was doing when it died by
        itself is left to the next one to report as well, which is there as long as nobody has heard
        of it."""
        inside, orderly = child.recorder.deaths(), child.recorder.orderly() == code
        by_itself = losses.by_itself(code, child.recorder)
        child.recorder.clear()
        words = losses.described(inside)
        jobs = child.recorder.jobs()
        death = self._deaths.died(child.number, code, memory_bytes, words, jobs)
        if not orderly:
            self._obituaries.announce(death)
        if by_itself and inside:
            lost = losses.reports(inside, lived_s)
            losses.hand_over(child.recorder, lost)
            self._obituaries.publish(lost)
        where = f" inside user code: {words}" if inside and not orderly else ""
        return f"{self._deaths.explained(death)}{where}"
