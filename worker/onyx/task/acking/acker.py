"""The acking daemon of one peer in one allocation version: a tasklet beside the tasks.

Acks arrive on the transport's threads and are only queued; a step absorbs all of them at once into
the ledger and sends completions to the inputs.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable

from onyx.base.runs import Numbers, Run, joined
from onyx.base.seams import Clock
from onyx.ids import AllocationVersion, JobId
from onyx.ledger.acker import Acker
from onyx.ledger.holds import Holds
from onyx.ledger.lineage import END_ROOTS
from onyx.ledger.returns import Trees
from onyx.task.acking.owners import Owners
from onyx.task.acking.returning import Returning
from onyx.task.channels.wiring import Site
from onyx.task.table import ADVANCED, DONE, WAITING, Progress
from onyx.telemetry.catalog import ACKS, FORGOTTEN_TREES, OPEN_TREES
from onyx.telemetry.interface import NULL_TASK, TaskMetrics
from onyx.transport.interface import Transport

logger = logging.getLogger(__name__)

EXPIRE_INTERVAL_S = 5.0
LARGE_PARCEL_ROOTS = 256
"""From this size on, joining parcels (and sorting what was joined) costs more than it saves."""
REPLAYS_MAX = 65_535
"""The replays of one tree for want of memory; more than can be counted, so without a limit."""


class AckerTask:
    """Not thread-safe except `post`, `holds` and `waiting_roots`."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        job: JobId,
        version: AllocationVersion,
        wake: Callable[[], None],
        idle_timeout_s: Callable[[], float | None],
        metrics: Callable[[], TaskMetrics] = lambda: NULL_TASK,
    ) -> None:
        """
        Args:
            idle_timeout_s: gives the time without acks after which a tree has been replayed, in
                seconds; None while the job is being loaded.
            metrics: gives those of the task whose peer is the acker; none that count while the job
                is being loaded.
        """
        self._transport = transport
        self._clock = clock
        self._job = job
        self._version = version
        self._owners: Owners | None = None
        self._wake = wake
        self._idle_timeout_s = idle_timeout_s
        self._ledger = Acker()
        self._queue: deque[tuple[Numbers, Numbers]] = deque()
        self._refused: list[tuple[Site, Numbers, int]] = []
        self._given: deque[Trees] = deque()
        self._returns = Returning(transport, job, version)
        self.holds = Holds()
        """Trees that somebody works on."""
        self._next_expiry_s = 0.0
        self._metrics_of = metrics
        self._metrics = NULL_TASK
        self.stopped = False

    def ready(self, owners: Owners) -> None:
        """The job is ready: from now on it is known who answers for which root."""
        self._owners = owners
        self._wake()

    def post(self, roots: Numbers, values: Numbers) -> None:
        """Queue acks; bounded by the roots in flight, because senders fold before they send."""
        self._queue.append((roots, values))
        self._wake()

    def give_back(self, trees: Trees) -> None:
        """Queue what functions give back for trees; it comes before the acks of these functions."""
        self._given.append(trees)

    def waiting_roots(self) -> tuple[Owners | None, list[Numbers]]:
        """The roots of what has come and has not been answered, and by whom they are owned; from
        any thread. A thread that tasks share may be in a function that takes long."""
        refused = [roots for _, roots, retries_max in tuple(self._refused) if not retries_max]
        return self._owners, [roots for roots, _ in tuple(self._queue)] + refused

    def advance(self) -> Progress:
        """Absorb the acks that have arrived, and send completions to the inputs."""
        if self.stopped:
            self._metrics.close()
            return DONE
        if self._owners is None:
            return WAITING
        if self._metrics is NULL_TASK:
            self._metrics = self._metrics_of()
        self._expire()
        if not self._returns.send() or (self._refused and not self._send(self._refused)):
            return WAITING
        if not self._queue:
            return WAITING
        parcels = self._parcels()
        while self._given:  # not before: what comes now belongs to acks that come later
            self._returns.add(self._given.popleft())
        self._metrics.add(ACKS, sum(len(roots) for roots, _ in parcels))
        complete = self._ledger.absorb(parcels)
        for each in complete:
            self._returns.complete(each, self._owners)
        news = [(site, roots, 0) for each in complete for site, roots in self._owners.split(each)]
        if len(lost := self._ledger.forgotten()):
            lost.sort()
            self._metrics.add(FORGOTTEN_TREES, len(lost))
            news += [(site, roots, REPLAYS_MAX) for site, roots in self._owners.split(lost)]
            logger.warning(
                "job %s: %d trees are replayed: there is no room for all that are open; lower "
                "maxPending of the inputs, or give the job more ackers",
                self._job,
                len(lost),
            )
        if self._returns.send():
            self._send(news)
        else:
            self._refused = news
        return ADVANCED

    def _parcels(self) -> list[tuple[Numbers, Numbers]]:
        """What waits: runs and large parcels as they came, because they are in order, small ones as
        one."""
        gathered = [self._queue.popleft() for _ in range(len(self._queue))]
        large = [each for each in gathered if _is_large(each[0])]
        small = [each for each in gathered if not _is_large(each[0])]
        if len(small) > 1:
            roots, values = zip(*small, strict=True)
            small = [(joined(roots), joined(values))]
        return large + small

    def _send(self, parcels: list[tuple[Site, Numbers, int]]) -> bool:
        self._refused = [
            (site, roots, retries_max)
            for site, roots, retries_max in parcels
            if not self._transport.send_completions(
                site.group, self._job, self._version, site.peer, roots, retries_max
            )
        ]
        return not self._refused

    def _expire(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._next_expiry_s:
            self._next_expiry_s = now_s + EXPIRE_INTERVAL_S
            # Some inputs may end days after others, and nobody sends their END items again.
            for roots in (*self.holds.take(), END_ROOTS):
                self._ledger.held(roots)
            timeout_s = self._idle_timeout_s()
            self._ledger.expire(now_s, math.inf if timeout_s is None else timeout_s)
            self._metrics.set(OPEN_TREES, self._ledger.pending_count())


def _is_large(roots: Numbers) -> bool:
    return isinstance(roots, Run) or len(roots) >= LARGE_PARCEL_ROOTS
