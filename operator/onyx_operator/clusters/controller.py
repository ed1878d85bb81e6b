"""The reconciler of OnyxClusters, and what makes it reconcile one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from onyx.errors import Unavailable
from onyx.log.tenancy import Usage
from onyx.reports.deaths import Death
from onyx.settings import Settings
from onyx_operator.clusters.act import act
from onyx_operator.clusters.observe import observe, referring_jobs
from onyx_operator.clusters.observed import ClusterObservation
from onyx_operator.clusters.plan import ClusterPlan, plan
from onyx_operator.clusters.pool import CLUSTER_LABEL, Pool
from onyx_operator.clusters.spec import ClusterRefusal
from onyx_operator.clusters.status import news, status
from onyx_operator.connection import connection
from onyx_operator.context import OperatorProcess
from onyx_operator.kube import KubeError, Object
from onyx_operator.logs.state import TAKEN, Trouble
from onyx_operator.reconciler import ObjectKind, Reconciler
from onyx_operator.work_queue import ObjectKey


class Clusters:
    """The controller of all OnyxClusters. Belongs to one event loop. What no watch shows (drift of
    other objects, a ConfigMap of code) is found because each list touches every cluster."""

    def __init__(
        self,
        operator: OperatorProcess,
        deaths: Callable[[Settings], Sequence[Death]] = lambda _: (),
        usage: Callable[[Settings], Usage | None] = lambda _: None,
        trouble: Callable[[Settings], Trouble | None] = lambda _: None,
    ) -> None:
        """
        Args:
            deaths: of worker processes lately, by the log of their cluster.
            usage: what its tenancy holds, by its log.
            trouble: why its log cannot be used.
        """
        self._operator, self._trouble = operator, trouble
        self._deaths, self._usage = deaths, usage
        pace, metrics = operator.settings.clusters, operator.metrics
        # One plan: an object that others change back would be applied again and again.
        kind = ObjectKind(self._observe, plan, self._act, status, news, plans_max=1)
        self._reconciler = Reconciler(kind, operator.clusters, operator.kube, pace, metrics)
        operator.clusters.listen(self._changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._reconciler.run()

    def workers_changed(self, body: Object) -> None:
        """A StatefulSet has changed."""
        cluster = (body["metadata"].get("labels") or {}).get(CLUSTER_LABEL)
        if cluster:
            self._reconciler.touch(ObjectKey(body["metadata"]["namespace"], cluster))

    async def _observe(self, _: ObjectKey, body: Object) -> ClusterObservation:
        found = await observe(self._operator, body)
        log = connection(body, self._operator.settings)
        if not isinstance(log, Settings):
            return found
        trouble = self._trouble(log) if isinstance(found.wanted, Pool) else None
        if trouble is not None and trouble.reason == TAKEN:
            found = replace(found, wanted=ClusterRefusal(TAKEN, trouble.message))
        return replace(found, trouble=trouble, deaths=self._deaths(log), usage=self._usage(log))

    async def _act(
        self, body: Object, _: ClusterObservation, plan: ClusterPlan
    ) -> ClusterPlan | None:
        log = connection(body, self._operator.settings)
        assert isinstance(log, Settings), "else there is nothing to do"
        return await act(self._operator.kube, body, log, plan)

    def _changed(self, key: ObjectKey, body: Object, gone: bool) -> None:
        if gone:
            self._reconciler.forget(key)
            for other in self._operator.tenancies.forget(body):
                self._reconciler.touch(other)
            self._operator.background(self._warn_jobs(body))
        else:
            self._reconciler.touch(key)

    async def _warn_jobs(self, cluster: Mapping[str, Any]) -> None:
        """Warn jobs that are left without workers, with an event each; best effort."""
        metadata, kube = cluster["metadata"], self._operator.kube
        with contextlib.suppress(KubeError, Unavailable):
            for job in await referring_jobs(kube, metadata["namespace"], metadata["name"]):
                message = f"its OnyxCluster {metadata['name']} was deleted, and with it all workers"
                await kube.event(job, "ClusterDeleted", message, warning=True)
