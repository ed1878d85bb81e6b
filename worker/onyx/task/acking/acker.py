"""The acking daemon of one peer in one allocation version: a tasklet beside the tasks.

Acks arrive on the transport's threads and are only queued; a step absorbs all of them at once into
the ledger and sends completions to the inputs.

What functions give back for a tree is kept while the tree is open, and sent to the input before its
completion. What belongs to an attempt that never completes stays here until it is the oldest and
there is no room. Then its values go, and who asked for them reads why; what failed in it is kept
ten times longer, for an answer must not say that it was processed.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable

import numpy as np

from onyx.base.runs import Numbers, Run, array_of, joined
from onyx.base.seams import Clock
from onyx.ids import AllocationVersion, JobId
from onyx.ledger.acker import Acker
from onyx.ledger.lineage import END_ROOTS
from onyx.ledger.pending import InFlightRoots
from onyx.ledger.returns import Trees, add_tree, without_values
from onyx.model.job import Job
from onyx.model.workflow import begins_trees
from onyx.task.acking.owners import Owners
from onyx.task.channels.wiring import Site
from onyx.task.table import ADVANCED, DONE, WAITING, StepOutcome
from onyx.telemetry.catalog import ACKS, FORGOTTEN_TREES, OPEN_TREES
from onyx.telemetry.interface import NULL_TASK, TaskMetrics
from onyx.transport.interface import Transport

logger = logging.getLogger(__name__)

EXPIRE_INTERVAL_S = 5.0

EXPIRE_MARGIN_S = 60.0
"""After a tree was due to be replayed; the input may be busy or waiting for its source."""

LARGE_PARCEL_ROOTS = 256
"""From this size on, joining parcels (and sorting what was joined) costs more than it saves."""

REPLAYS_MAX = 65_535
"""The replays of one tree for want of memory; more than can be counted, so without a limit."""

TREES_MAX = 100_000
"""Trees whose values are kept."""

BARE_MAX = 10 * TREES_MAX
"""Trees of which it is kept what failed, and that values are gone."""

GONE = f"more than {TREES_MAX:,} trees with values were open at once"


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
        self._returns = OpenReturns(transport, job, version)
        self.holds = InFlightRoots()
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

    @property
    def woken(self) -> bool:
        """Always: by acks, and where what it sends was refused, when there is room."""
        return True

    def advance(self) -> StepOutcome:
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


def idle_timeout_s(job: Job) -> float:
    """Time without acks of a tree after which the task that began it has begun it again, in
    seconds."""
    began = [entry for entry in job.catalog if begins_trees(job, entry.name)]
    longest_ms = max(entry.pending_timeout + 2 * entry.input_retry_timeout for entry in began)
    return longest_ms / 1_000 + EXPIRE_MARGIN_S


# --- what functions give back -------------------------------------------------------------------


class OpenReturns:
    """Not thread-safe."""

    def __init__(self, transport: Transport, job: JobId, version: AllocationVersion) -> None:
        self._transport = transport
        self._job = job
        self._version = version
        self._trees: Trees = {}
        self._bare: Trees = {}
        self._unsent: list[tuple[Site, Trees]] = []

    def add(self, trees: Trees) -> None:
        """Something is given back for trees."""
        for root, parts in trees.items():
            add_tree(self._trees, root, parts)
        while len(self._trees) > TREES_MAX:
            root = next(iter(self._trees))
            add_tree(self._bare, root, without_values(self._trees.pop(root), GONE))
        while len(self._bare) > BARE_MAX:
            del self._bare[next(iter(self._bare))]

    def complete(self, roots: Numbers, owners: Owners) -> None:
        """Trees are complete: what was given back for them goes to their inputs."""
        if not self._trees:
            return
        found: Trees = {}
        for trees in (self._bare, self._trees):
            for root in [each for each in trees if _is_among(each, roots)]:
                add_tree(found, root, trees.pop(root))
        for site, mine in owners.split(np.array(sorted(found), dtype=np.uint64)):
            self._unsent.append((site, {root: found[root] for root in array_of(mine).tolist()}))

    def send(self) -> bool:
        """Send what is to be sent; False if somebody does not take it now."""
        while self._unsent:
            site, trees = self._unsent[0]
            if not self._transport.send_returns(
                site.group, self._job, self._version, site.peer, trees, to_acker=False
            ):
                return False
            del self._unsent[0]
        return True


def _is_among(root: int, roots: Numbers) -> bool:
    """Whether a root is one of these, which rise."""
    if isinstance(roots, Run):
        return roots.first <= root < roots.end
    at = int(np.searchsorted(roots, np.uint64(root)))
    return at < len(roots) and int(roots[at]) == root
