"""The acking daemon of one peer in one allocation version: a tasklet beside the tasks.

Acks arrive on the transport's threads and are only queued; a step absorbs all of them at once into
the ledger and sends what has completed to the inputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from onyx.flow.batch import U64
from onyx.ids import AllocationVersion, JobId
from onyx.ledger.acker import Acker
from onyx.seams import Clock
from onyx.task.owners import Owners
from onyx.task.phases import Progress
from onyx.task.wiring import Site
from onyx.transport.interface import Transport

EXPIRE_INTERVAL_S = 5.0
LARGE_PARCEL_ROOTS = 256
"""From this size on, joining parcels (and sorting what was joined) costs more than it saves."""


class AckerTask:
    """Not thread-safe except `post`."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        job: JobId,
        version: AllocationVersion,
        wake: Callable[[], None],
        idle_timeout_s: float,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._job = job
        self._version = version
        self._owners: Owners | None = None
        self._wake = wake
        self._ledger = Acker(idle_timeout_s)
        self._queue: deque[tuple[U64, U64]] = deque()
        self._refused: list[tuple[Site, U64]] = []
        self._next_expiry_s = 0.0
        self.stopped = False

    def ready(self, owners: Owners) -> None:
        """The job is ready: from now on it is known who answers for which root."""
        self._owners = owners
        self._wake()

    def post(self, roots: U64, values: U64) -> None:
        """Queue acks; bounded by the roots in flight, because senders fold before they send."""
        self._queue.append((roots, values))
        self._wake()

    def advance(self) -> Progress:
        """Absorb what has arrived and tell the inputs what is complete."""
        if self.stopped:
            return Progress.DONE
        if self._owners is None:
            return Progress.WAITING
        self._expire()
        if self._refused and not self._send(self._refused):
            return Progress.WAITING
        if not self._queue:
            return Progress.WAITING
        complete = self._ledger.absorb(self._parcels())
        self._send(self._owners.split(complete))
        return Progress.ADVANCED

    def _parcels(self) -> list[tuple[U64, U64]]:
        """What waits: large parcels as they came, because they are in order, small ones as one."""
        gathered = [self._queue.popleft() for _ in range(len(self._queue))]
        large = [each for each in gathered if len(each[0]) >= LARGE_PARCEL_ROOTS]
        small = [each for each in gathered if len(each[0]) < LARGE_PARCEL_ROOTS]
        if len(small) > 1:
            roots = np.concatenate([each for each, _ in small])
            values = np.concatenate([each for _, each in small])
            small = [(roots, values)]
        return large + small

    def _send(self, parcels: list[tuple[Site, U64]]) -> bool:
        self._refused = [
            (site, roots)
            for site, roots in parcels
            if not self._transport.send_completions(
                site.group, self._job, self._version, site.peer, roots, retries_max=0
            )
        ]
        return not self._refused

    def _expire(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._next_expiry_s:
            self._next_expiry_s = now_s + EXPIRE_INTERVAL_S
            self._ledger.expire(now_s)
