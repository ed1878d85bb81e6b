"""How far behind the jobs of one log are, as its workers say when they are asked.

Each pod is asked for one page, `/lag` beside its metrics, which has numbers alone; they are joined
as `onyx jobs` joins them. Which pods there are the API server says: addresses in a log are of its
tenant, who could have the operator knock at any port that it reaches. A pod of a tenant may answer
anything still. So an answer is bounded, tasks that the log does not know are dropped, and figures
fit into the status.

Questions are coroutines with a deadline, in turns of their own: who hangs holds up neither a
reconciliation nor other logs. A job has a lag when all groups that work on it have answered the
last time; the sum of some would be too little, and an old one wrong.

Rejected: to ask over gRPC ([0144](../../../docs/decisions/0144-lag-in-the-status.md)).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from onyx.base.structs import UNREADABLE
from onyx.errors import OnyxError
from onyx.ids import JobId
from onyx.replica.state import Replica
from onyx.reports.measures import (
    Durations,
    JobMeasures,
    Measures,
    WorkerMeasures,
    of_inputs,
    of_jobs,
)
from onyx.settings import Settings
from onyx_operator.logs.follower import Follower
from onyx_operator.logs.state import JobLag
from onyx_operator.pages import ANSWERED, Address, page

Workers = Callable[[Settings], Awaitable[Sequence[Address]]]
"""Where the workers of a log serve their pages."""
LOOK_S = 10.0
"""Longest time for all workers of a log; who has not answered by then is silent."""
AT_ONCE = 4
"""Workers of a log that are asked at the same time."""
WORKERS_PER_S = 20
"""Workers of a log that are asked, as a mean: of many, each less often."""
PAGES_BYTES_MAX = 16_777_216
"""Answers of all workers of a log together."""
LATENCY_PART = 0.99
WHOLE_MAX = 2**53
"""More no figure of a status has: JSON of others ends there."""
logger = logging.getLogger(__name__)
_DOCUMENTS = msgspec.json.Decoder(list[WorkerMeasures])


class JobLags:
    """The lags of the jobs of one log. Belongs to the event loop."""

    def __init__(
        self,
        log: Follower,
        workers: Callable[[], Awaitable[Sequence[Address]]],
        changed: Callable[[Collection[JobId]], None],
        tenancy: str = "",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            changed: called with jobs of which something new is known.
            tenancy: that of the log, for messages.
        """
        self._log, self._workers, self._tenancy = log, workers, tenancy
        self._changed, self._now_s = changed, now_s
        self._known: dict[JobId, JobLag] = {}
        self._next_s = 0.0
        self._trouble = ""
        """Why nobody has answered the last time."""

    def of(self, job: JobId) -> JobLag | None:
        """What the workers of a job have said; None: not all have."""
        return self._known.get(job)

    async def look(self) -> None:
        """Ask the workers, if there is a job with peers."""
        jobs = [job for job in self._log.replica.jobs if self._log.replica.run(job).allocation]
        if self._log.trouble is not None or not jobs:
            self._learn({})
        elif self._now_s() >= self._next_s:
            answers: Sequence[WorkerMeasures] = ()
            replica, trouble = self._log.replica, ""
            try:
                workers = await self._workers()
                self._next_s = self._now_s() + len(workers) / WORKERS_PER_S
                answers = await self._answers(workers, replica)
                trouble = "" if answers else f"none of {len(workers)} pods answers"
            except OnyxError as error:
                trouble = str(error)
            self._complain(trouble)
            self._learn(lags(replica, jobs, answers))

    async def _answers(
        self, workers: Sequence[Address], replica: Replica
    ) -> Sequence[WorkerMeasures]:
        """What workers say of tasks that a replica knows."""
        found: list[WorkerMeasures] = []
        waiting, left = list(reversed(workers)), PAGES_BYTES_MAX

        async def ask() -> None:
            nonlocal left
            while waiting and left > 0:
                status, body = await page(*waiting.pop(), "/lag")
                body = body if status == ANSWERED else b""
                left -= len(body)
                found.extend(documents(body, replica))

        asking = [asyncio.create_task(ask()) for _ in range(min(AT_ONCE, len(waiting)))]
        try:
            if asking:
                await asyncio.wait(asking, timeout=LOOK_S)
        finally:
            for each in asking:
                each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        return found

    def _complain(self, trouble: str) -> None:
        before, self._trouble = self._trouble, trouble
        if trouble and not before:
            logger.warning(
                "how far the jobs of tenancy %s are behind is not known: %s", self._tenancy, trouble
            )

    def _learn(self, known: dict[JobId, JobLag]) -> None:
        before, self._known = self._known, known
        jobs = before.keys() | known.keys()
        if news := sorted(job for job in jobs if before.get(job) != known.get(job)):
            self._changed(news)


def lags(
    replica: Replica, jobs: Iterable[JobId], answers: Sequence[WorkerMeasures]
) -> dict[JobId, JobLag]:
    """The lags of those jobs all of whose groups are among the answers."""
    measured = of_jobs(Measures(tuple(answers)).tasks)
    answered = {each.group for each in answers}
    found: dict[JobId, JobLag] = {}
    for job in jobs:
        peers = chain.from_iterable(replica.run(job).allocation.values())
        whole = all(replica.groups_reverse_index.get(peer) in answered for peer in peers)
        if whole and job in measured and (lag := lag_of(measured[job])) is not None:
            found[job] = lag
    return found


def lag_of(its: JobMeasures) -> JobLag | None:
    """What a status says of it; None: nothing is known."""
    latency_s = its.complete.quantile_s(LATENCY_PART)
    found = JobLag(
        _whole(its.segments_behind),
        _whole(its.bytes_behind),
        _whole(its.seconds_behind),
        _whole(its.per_s),
        _whole(None if latency_s is None else latency_s * 1000),
    )
    return None if found == JobLag() else found


def _whole(value: float | None) -> int | None:
    return None if value is None else round(min(max(value, 0), WHOLE_MAX))


def documents(body: bytes, replica: Replica) -> list[WorkerMeasures]:
    """The documents in an answer, each with tasks that a replica knows; none if it is something
    else."""
    try:
        found = _DOCUMENTS.decode(body)
    except UNREADABLE:
        return []
    return [_of_log(each, replica) for each in found]


def _of_log(document: WorkerMeasures, replica: Replica) -> WorkerMeasures:
    known = tuple(
        each
        for each in of_inputs(document).tasks
        if (job := JobId(each.job)) in replica.records
        and each.task in replica.tasks_of(job)
        and each.input is not None
        and _is_histogram(each.input.complete)
    )
    return replace(document, tasks=Measures((replace(document, tasks=known),)).tasks, edges=())


def _is_histogram(its: Durations) -> bool:
    return not its.counts or (bool(its.bounds_s) and len(its.counts) == len(its.bounds_s) + 1)
