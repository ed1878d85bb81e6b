"""How a worker process has died: what it was doing, what the kernel and the exit code say of it,
who hears of it.

A death by SIGKILL is one for want of memory if the kernel has counted such a kill (`MemoryKills`)
for which there is no other death yet. A kill that nobody of ours has died of, some time later, was
of another process of the container, mostly a JVM of Spark's.

Deaths for want of memory in quick succession end the supervisor. What has too little memory goes on
having too little; as long as the supervisor starts it again, its container looks healthy. With the
end of the container there are restarts, the reason OOMKilled, back-off and alerts.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections import deque
from collections.abc import Sequence

from onyx.base.seams import Clock, SystemClock
from onyx.ids import JobId
from onyx.processes import lost_segments
from onyx.processes.child import SupervisedWorker
from onyx.processes.death_reporter import DeathReporter
from onyx.processes.programs import how
from onyx.reports.deaths import Death, DeathCause, mebibytes
from onyx.settings import Settings, SupervisorSettings
from onyx.telemetry.memory_kills import MemoryKills

logger = logging.getLogger("onyx.supervisor")
OTHERS_AFTER_S = 10.0
"""A process of ours that was killed has died by then: it takes time to free its memory."""


class ExitExaminer:
    """Examines the ends of worker processes under one supervisor, by whose thread alone it is used,
    except for `close`."""

    def __init__(self, settings: Settings) -> None:
        self._reporter = DeathReporter(settings)
        self._deaths = DeathWatch(
            MemoryKills(), SystemClock(), settings.supervisor, socket.gethostname()
        )

    def close(self) -> None:
        """Report what is not reported yet, and end."""
        self._reporter.close()

    def look_at_others(self) -> str:
        """Report deaths in this container that were of no worker; why it has been too many deaths,
        or empty."""
        for death in self._deaths.others():
            logger.warning(
                "a process of this container was killed that is no worker process, such as a JVM "
                "of Spark: %s",
                self._deaths.explained(death),
            )
            self._reporter.announce(death)
        return self._deaths.too_many() or ""

    def examine(self, child: SupervisedWorker, code: int, memory_bytes: int, lived_s: float) -> str:
        """How a process ended, in words, reported to the cluster. What it was doing when it died by
        itself is left to the next one to report as well, which is there as long as nobody has heard
        of it."""
        inside, orderly = child.recorder.deaths(), child.recorder.orderly() == code
        by_itself = lost_segments.by_itself(code, child.recorder)
        child.recorder.clear()
        words = lost_segments.described(inside)
        jobs = child.recorder.jobs()
        death = self._deaths.died(child.number, code, memory_bytes, words, jobs)
        if not orderly:
            self._reporter.announce(death)
        if by_itself and inside:
            lost = lost_segments.reports(inside, lived_s)
            lost_segments.hand_over(child.recorder, lost)
            self._reporter.publish(lost)
        where = f" inside user code: {words}" if inside and not orderly else ""
        return f"{self._deaths.explained(death)}{where}"


class DeathWatch:
    """The deaths of all processes of one supervisor. Used by its thread alone.

    Args:
        kills: what the kernel counts.
        clock: of this process.
        settings: when it is too much.
        host: name of this machine, or pod.
    """

    def __init__(
        self, kills: MemoryKills, clock: Clock, settings: SupervisorSettings, host: str
    ) -> None:
        self._kills = kills
        self._clock = clock
        self._settings = settings
        self._host = host
        self._counted = kills.count() or 0
        self._unexplained: deque[float] = deque()
        """When kills were seen that no process of ours has died of yet."""
        self._ours: deque[float] = deque()
        """When processes of ours have died of such."""

    def died(
        self,
        process: int,
        code: int,
        memory_bytes: int,
        inside: str = "",
        jobs: Sequence[JobId] = (),
    ) -> Death:
        """A process of ours has died.

        Args:
            process: its number.
            code: its exit code, negative for a signal.
            memory_bytes: most memory that it held.
            inside: which user code was running, in words.
            jobs: whose user code it has run.
        """
        self._look()
        cause = DeathCause.EXIT if code >= 0 else DeathCause.SIGNAL
        if code == -signal.SIGKILL and self._unexplained:
            self._unexplained.popleft()
            self._ours.append(self._clock.monotonic_s())
            cause = DeathCause.MEMORY
        return self._death(process, cause, how(code), memory_bytes, inside, tuple(jobs))

    def others(self) -> list[Death]:
        """Deaths for want of memory in the container that were of none of our processes."""
        self._look()
        found: list[Death] = []
        before_s = self._clock.monotonic_s() - OTHERS_AFTER_S
        while self._unexplained and self._unexplained[0] <= before_s:
            self._unexplained.popleft()
            if self._kills.of_container:
                found.append(self._death(-1, DeathCause.MEMORY, "SIGKILL"))
        return found

    def too_many(self) -> str:
        """Why the supervisor gives up; empty while it does not."""
        most, within_s = self._settings.memory_kills_max, self._settings.memory_kills_within_s
        while self._ours and self._clock.monotonic_s() - self._ours[0] > within_s:
            self._ours.popleft()
        if not most or len(self._ours) < most:
            return ""
        limit = self._kills.limit_bytes()
        has = f", whose container has {mebibytes(limit)}" if limit else ""
        return (
            f"the kernel has killed {len(self._ours)} processes of this worker for want of memory "
            f"within {within_s:g} s{has}: give it more memory (in an OnyxCluster "
            "resources.limits.memory), fewer peers or processes, or its tasks a smaller batchSize"
        )

    def explained(self, death: Death) -> str:
        """A death in words, for the log."""
        held = f"it held {mebibytes(death.memory_bytes)} of memory at most"
        if death.cause is not DeathCause.MEMORY:
            return f"{death.how} ({held})"
        limit = f" with a limit of {mebibytes(death.limit_bytes)}" if death.limit_bytes else ""
        where = f"this container{limit}" if self._kills.of_container else "this machine"
        return f"{death.how}: the kernel killed it because {where} was out of memory ({held})"

    def _death(
        self,
        process: int,
        cause: DeathCause,
        by: str,
        memory_bytes: int = 0,
        inside: str = "",
        jobs: tuple[JobId, ...] = (),
    ) -> Death:
        limit = self._kills.limit_bytes() or 0
        at_ms = self._clock.wall_ms()
        return Death(self._host, process, at_ms, cause, by, memory_bytes, limit, inside, jobs)

    def _look(self) -> None:
        count = self._kills.count()
        if count is not None and count > self._counted:
            self._unexplained.extend([self._clock.monotonic_s()] * (count - self._counted))
            self._counted = count
