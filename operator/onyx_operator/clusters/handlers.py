"""The kopf handlers of clusters: thin, all decisions are made elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

import kopf

from onyx.errors import Unavailable
from onyx_operator.clusters import observe
from onyx_operator.clusters.pool import CLUSTER_LABEL
from onyx_operator.clusters.reconcile import reconcile
from onyx_operator.context import Operator
from onyx_operator.kube import CLUSTERS, KubeError
from onyx_operator.reconciler import Key, Reconciler

KIND = "cluster"
logger = logging.getLogger(__name__)


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Add the handlers to kopf's registry."""
    pace = operator.settings.clusters
    reconciler = Reconciler(KIND, lambda key: reconcile(operator, key), pace, operator.metrics)
    tasks: list[asyncio.Task[None]] = []

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.watching.label_selectors["apps", "statefulsets"] = CLUSTER_LABEL
        tasks.append(asyncio.create_task(reconciler.run()))
        tasks.append(asyncio.create_task(_resync(operator, reconciler)))

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @kopf.on.event("onyx.dev", CLUSTERS.plural, registry=registry)
    async def cluster_changed(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        operator.metrics.watch_event(KIND)
        if event["type"] == "DELETED":
            await _tell_jobs(operator, body)
        else:
            reconciler.touch(_key(body["metadata"]))

    @kopf.on.event("apps", "statefulsets", registry=registry)
    async def workers_changed(body: kopf.Body, **_: Any) -> None:
        cluster = body["metadata"].get("labels", {}).get(CLUSTER_LABEL)
        if cluster:
            reconciler.touch(Key(body["metadata"]["namespace"], cluster))


def _key(metadata: Mapping[str, Any]) -> Key:
    return Key(metadata["namespace"], metadata["name"])


async def _resync(operator: Operator, reconciler: Reconciler) -> None:
    """Touch every cluster now and then: what no watch tells (drift of other objects, a ConfigMap of
    code) is found by looking."""
    while True:
        try:
            for namespace in operator.settings.namespaces or (None,):
                for cluster in await operator.kube.list_all(CLUSTERS, namespace):
                    reconciler.touch(_key(cluster["metadata"]))
        except (KubeError, Unavailable) as error:
            logger.warning("clusters cannot be listed: %s", error)
        await asyncio.sleep(operator.settings.clusters.resync_interval_s)


async def _tell_jobs(operator: Operator, cluster: Mapping[str, Any]) -> None:
    """Jobs that are left without workers are told; nothing waits for them."""
    metadata = cluster["metadata"]
    with contextlib.suppress(KubeError, Unavailable):
        for job in await observe.referring_jobs(
            operator.kube, metadata["namespace"], metadata["name"]
        ):
            message = f"its OnyxCluster {metadata['name']} was deleted, and with it all workers"
            await operator.kube.event(job, "ClusterDeleted", message, warning=True)
