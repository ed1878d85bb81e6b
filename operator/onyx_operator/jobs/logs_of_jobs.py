"""Which log has the job of an OnyxJob, and how that log is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onyx.model.declaration import Declaration
from onyx.settings import Settings
from onyx_operator.connection import NoLog, connection
from onyx_operator.context import OperatorProcess
from onyx_operator.jobs.record import read_record
from onyx_operator.logs.state import Trouble
from onyx_operator.logs.view import LogView, LogViews
from onyx_operator.work_queue import ObjectKey


class LogsOfJobs:
    """The logs of all OnyxJobs. Belongs to one event loop."""

    def __init__(self, operator: OperatorProcess, views: LogViews) -> None:
        self._operator, self._views = operator, views

    def view(self, body: Mapping[str, Any]) -> LogView | Trouble:
        """The view of the log of an OnyxJob's cluster, or why there is none."""
        settings = self.log_of(body)
        return settings if isinstance(settings, Trouble) else self._views.view(settings)

    def log_of(self, body: Mapping[str, Any]) -> Settings | Trouble:
        """How the log is reached that has the job of an OnyxJob, or is to have it: that of its
        cluster; if there is none any more, that of another one that has taken over its log."""
        found = self.connection(cluster_of(body))
        heir = self.heir(body, found)
        return found if heir is None else self.connection(heir)

    def connection(self, cluster: ObjectKey) -> Settings | Trouble:
        """How the log of a cluster is reached, or why it cannot be."""
        body = self._operator.clusters.store.get(cluster)
        if body is None:
            message = (
                f"there is no OnyxCluster {cluster.name} in namespace {cluster.namespace}: "
                "make it, or correct spec.clusterRef"
            )
            return Trouble("ClusterNotFound", message, without_workers=True)
        if self._operator.tenancies.is_refused(body):
            message = (
                f"OnyxCluster {cluster.name} has no workers, because another one has its tenancy: "
                f"kubectl describe oc/{cluster.name} says what to do"
            )
            return Trouble("ClusterRefused", message, without_workers=True)
        found = connection(body, self._operator.settings)
        if isinstance(found, NoLog):
            return Trouble("ClusterNotReady", f"OnyxCluster {cluster.name}: {found.message}")
        return found

    def heir(self, body: Mapping[str, Any], found: Settings | Trouble) -> ObjectKey | None:
        """The cluster that has taken over the log with the job of an object whose own cluster is
        gone or refused."""
        job = read_record(body).job_id
        if isinstance(found, Settings) or job is None:
            return None
        views = dict(self._views.items())
        for key in self._operator.clusters.store:
            settings = self.connection(key)
            view = views.get(settings) if isinstance(settings, Settings) else None
            if view is not None and view.stage_of(job) != "unknown":
                return key
        return None


def cluster_of(body: Mapping[str, Any]) -> ObjectKey:
    """Which OnyxCluster an OnyxJob belongs to, whether its spec is valid or not."""
    name = (body.get("spec") or {}).get("clusterRef")
    return ObjectKey(
        body["metadata"]["namespace"], name if isinstance(name, str) else Declaration().cluster_ref
    )
