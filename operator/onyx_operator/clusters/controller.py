"""All OnyxClusters of one operator: a queue of those that something has touched."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from onyx.errors import Unavailable
from onyx_operator.clusters import observe
from onyx_operator.clusters.act import reconcile
from onyx_operator.clusters.pool import CLUSTER_LABEL
from onyx_operator.context import Operator
from onyx_operator.kube import KubeError, Object
from onyx_operator.work_queue import Key, Reconciler

KIND = "cluster"


class Clusters:
    """See the module. Belongs to one event loop. What no watch tells (drift of other objects, a
    ConfigMap of code) is found because each list touches every cluster."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        pace = operator.settings.clusters
        self._reconciler = Reconciler(
            KIND, lambda key: reconcile(operator, key), pace, operator.metrics
        )
        operator.clusters.listen(self._changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._reconciler.run()

    def workers_changed(self, body: Object) -> None:
        """The watch tells of a StatefulSet."""
        cluster = (body["metadata"].get("labels") or {}).get(CLUSTER_LABEL)
        if cluster:
            self._reconciler.touch(Key(body["metadata"]["namespace"], cluster))

    def _changed(self, key: Key, body: Object, gone: bool) -> None:
        if gone:
            self._operator.background(self._tell_jobs(body))
        else:
            self._reconciler.touch(key)

    async def _tell_jobs(self, cluster: Mapping[str, Any]) -> None:
        """Jobs that are left without workers are told; nothing waits for them."""
        metadata, kube = cluster["metadata"], self._operator.kube
        with contextlib.suppress(KubeError, Unavailable):
            for job in await observe.referring_jobs(kube, metadata["namespace"], metadata["name"]):
                message = f"its OnyxCluster {metadata['name']} was deleted, and with it all workers"
                await kube.event(job, "ClusterDeleted", message, warning=True)
