"""The controller of OnyxJobs: how one is reconciled, what makes it reconcile (watches, logs,
clusters and time), and what is said of one before it is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from onyx.errors import OnyxError, Problem, Unavailable
from onyx.ids import JobId
from onyx.model.crd.status import PHASES
from onyx.settings import Settings
from onyx_operator.connection import hosts_of, tenancy_of
from onyx_operator.context import OperatorProcess
from onyx_operator.jobs.act import Actor
from onyx_operator.jobs.check import check
from onyx_operator.jobs.departures import Departures
from onyx_operator.jobs.logs_of_jobs import LogsOfJobs, cluster_of
from onyx_operator.jobs.observe import Observer
from onyx_operator.jobs.observed import JobObservation
from onyx_operator.jobs.plan import JobPlan, plan
from onyx_operator.jobs.status import news, status
from onyx_operator.kube import CLUSTERS, Kube, KubeError, Object, seconds
from onyx_operator.logs.lags import Workers
from onyx_operator.logs.state import Trouble
from onyx_operator.logs.view import LogViews
from onyx_operator.owners import Tenant
from onyx_operator.pages import obstacles
from onyx_operator.reconciler import ObjectKind, Reconciler
from onyx_operator.settings import OperatorSettings
from onyx_operator.work_queue import ObjectKey

CHECK_TIMEOUT_S = 2.0
"""Longest wait for the API server by whoever applies a job."""
COUNT_INTERVAL_S = 5.0
"""Period at which the jobs are counted by phase."""
PLANS_MAX = 8
"""Plans in one reconciliation; an edited job needs four."""
logger = logging.getLogger(__name__)


class Jobs:
    """The controller of all OnyxJobs. Belongs to one event loop."""

    def __init__(
        self,
        operator: OperatorProcess,
        workers: Workers,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`workers`: where those of a log say how far its jobs are behind."""
        settings, kube, metrics = operator.settings.jobs, operator.kube, operator.metrics
        self._operator, self._settings = operator, settings
        self._jobs, self._clusters = operator.jobs.store, operator.clusters.store
        actor = Actor(kube, self._jobs, metrics, operator.authors, settings.retry_max_s)
        heir = partial(_inherits, kube)
        self.views = LogViews(
            settings,
            operator.connect,
            self._log_changed,
            metrics,
            heir,
            workers,
            partial(_of_servers, operator.settings),
            kube.mark,
        )
        self.turned: Callable[[], None] = lambda: None
        """Called when a log was found or lost."""
        self._logs = LogsOfJobs(operator, self.views)
        self._observer = Observer(operator, self._logs, now_s)
        self._departures = Departures(operator, self.views, actor, now_s)
        kind = job_kind(self._observer, self._logs, actor)
        self._reconciler = Reconciler(kind, operator.jobs, kube, settings, metrics)

    async def run(self) -> None:
        """Reconcile until cancelled; then the logs are closed."""
        self._operator.clusters.listen(self._cluster_changed)
        self._operator.jobs.listen(self._job_changed)
        self._operator.jobs.after_list(self._search)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._reconciler.run())
                group.create_task(self._departures.run())
                group.create_task(_every(self._settings.resync_interval_s, self._tidy))
                group.create_task(_every(COUNT_INTERVAL_S, self._count))
                for learn in (self.views.learn_progress, self.views.learn_lags):
                    group.create_task(_every(self._settings.progress_interval_s, learn))
        finally:
            await self.views.keep(())

    async def check(self, body: Mapping[str, Any]) -> tuple[Sequence[Problem], Sequence[Problem]]:
        """Problems and warnings of an OnyxJob that is about to be stored, as far as its namespace
        is known."""
        key = cluster_of(body)
        if not self._operator.clusters.covers(key.namespace):
            return (), ()
        cluster = self._clusters.get(key)
        if cluster is None:  # perhaps it has just been made
            with contextlib.suppress(KubeError, Unavailable, TimeoutError):
                async with asyncio.timeout(CHECK_TIMEOUT_S):
                    cluster = await self._operator.kube.get(CLUSTERS, key.namespace, key.name)
        return (), check(body, cluster)

    def _job_changed(self, key: ObjectKey, body: Object, gone: bool) -> None:
        if not gone:
            self._reconciler.touch(key)
            return
        self._reconciler.forget(key)
        self._observer.forget(key)
        settings = self._logs.log_of(body)
        known = settings if isinstance(settings, Settings) else None
        self._departures.job_gone(body, cluster_of(body), known)

    def _cluster_changed(self, key: ObjectKey, body: Object, gone: bool) -> None:
        """Touch the jobs of the cluster, and those whose own cluster is gone, because this one may
        have taken over its log. The log of a cluster without OnyxJobs is followed too: there may be
        jobs in it whose objects are gone."""
        if gone and not self._operator.tenancies.is_refused(body):
            self._departures.cluster_gone(key, body)
        elif not gone and isinstance(settings := self._logs.connection(key), Settings):
            self.views.view(settings)
        for job_key, job in self._jobs.items():
            named = cluster_of(job)
            if named == key or self._clusters.get(named) is None:
                self._reconciler.touch(job_key)

    def _log_changed(self, jobs: Collection[JobId] | None) -> None:
        """Some jobs have changed in their log; None: any may have."""
        if jobs is None:
            self.turned()
            for key in self._jobs:
                self._reconciler.touch(key)
            self._search()
            return
        for job in jobs:
            owner = self._observer.owner_of(job)
            if owner is not None:
                self._reconciler.touch(owner)

    def _search(self) -> None:
        self._operator.background(self._departures.search())

    async def _count(self) -> None:
        """Count the jobs by phase, for the metrics."""
        phases = Counter((body.get("status") or {}).get("phase") for _, body in self._jobs.items())
        self._operator.metrics.jobs({phase: phases[phase] for phase in PHASES})
        jobs = [body for _, body in self._jobs.items()]
        self._operator.metrics.troubles(*troubles(jobs, dict(self._clusters.items())))

    async def _tidy(self) -> None:
        """Close the logs of clusters that are gone, and read job files again."""
        wanted = [self._logs.connection(key) for key in self._clusters]
        found = {each for each in wanted if isinstance(each, Settings)}
        await self.views.keep(found.union(self._departures.wanted()))
        self._observer.forget_files()


def job_kind(
    observer: Observer, logs: LogsOfJobs, actor: Actor
) -> ObjectKind[JobObservation, JobPlan]:
    """The kind OnyxJob for a reconciler."""

    async def act(body: Object, seen: JobObservation, plan: JobPlan) -> JobPlan | None:
        view = logs.view(body)
        log = None if isinstance(view, Trouble) else view
        return await actor.act(body, seen.spec, plan, log)

    return ObjectKind(observer.observe, plan, act, status, news, PLANS_MAX)


def troubles(
    jobs: Sequence[Object], clusters: Mapping[ObjectKey, Object]
) -> tuple[int, float, int]:
    """What alerts ask for, by what the objects say, so that an operator that comes back misses
    nothing: jobs that wait for workers that are to be there, when one failed last, clusters
    without a worker."""
    idle = {key for key, body in clusters.items() if (body.get("spec") or {}).get("replicas") == 0}
    phases = [(body, body.get("status") or {}) for body in jobs]
    starved = sum(
        status.get("phase") == "Waiting" and cluster_of(body) not in idle for body, status in phases
    )
    ends = [
        str(status.get("finishedAt")) for _, status in phases if status.get("phase") == "Failed"
    ]
    failed_s = max((seconds(each) or 0.0 for each in ends), default=0.0)
    known = [body.get("status") or {} for key, body in clusters.items() if key not in idle]
    return starved, failed_s, sum(status.get("readyReplicas") == 0 for status in known)


async def _of_servers(operator: OperatorSettings, log: Settings) -> list[str]:
    """What the servers of ZooKeeper say that do not serve, where they are those of the
    installation."""
    if log.zookeeper.address != operator.engine.zookeeper.address:
        return []
    return await obstacles(
        [(host, (host, port)) for host, port in hosts_of(",".join(operator.zookeeper_pages))]
    )


async def _inherits(kube: Kube, former: str, settings: Settings) -> bool:
    """Whether the tenancy of a former owner is that of some settings now: the API server knows who
    is gone.

    Raises:
        KubeError, Unavailable: the API server refuses, or cannot be reached.
    """
    ours, theirs = Tenant.read(settings.tenancy_owner), Tenant.read(former)
    if ours is None or theirs is None:
        return False
    if ours.is_same(theirs):
        return True
    if not ours.may_follow(theirs):
        return False
    there = await kube.get(CLUSTERS, theirs.namespace, theirs.name)
    return there is None or tenancy_of(there) != settings.tenancy_id


async def _every(interval_s: float, do: Callable[[], Awaitable[None]]) -> None:
    """Do something periodically; with an interval of 0, never."""
    while interval_s > 0:
        await asyncio.sleep(interval_s)
        try:
            await do()
        except OnyxError as error:
            logger.warning("%s", error)
        except Exception:
            logger.exception("a bug in the operator")
