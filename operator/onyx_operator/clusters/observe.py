"""What there is of a cluster: the reads of a reconciliation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onyx.model.declaration import CLUSTER_NAME_DEFAULT
from onyx_operator.clusters.plan import Found
from onyx_operator.clusters.pool import CLUSTER_LABEL, Pool, selector, selector_text
from onyx_operator.clusters.resources import KINDS, children
from onyx_operator.kube import CONFIG_MAPS, JOBS, Kube, Object, Resource

PODS = Resource("v1", "Pod", "pods")
_FINISHED = ("Completed", "Stopped", "Failed", "Killed")


async def code_config_map(kube: Kube, cluster: Mapping[str, Any]) -> Object | None:
    """The ConfigMap that `spec.code` names; None when it names none, or there is none."""
    code = (cluster.get("spec") or {}).get("code")
    name = code.get("configMap") if isinstance(code, Mapping) else None
    if not isinstance(name, str) or not name:
        return None
    return await kube.get(CONFIG_MAPS, cluster["metadata"]["namespace"], name)


async def found_objects(kube: Kube, pool: Pool) -> list[Found]:
    """All that is labelled as the pool's, and what else has a name that the pool needs."""
    labels = f"{CLUSTER_LABEL}={pool.cluster.name}"
    found = [
        Found(resource, body)
        for resource in KINDS
        for body in await kube.list_all(resource, pool.namespace, labels)
    ]
    there = {(each.resource, each.name) for each in found}
    for child in children(pool):
        if (child.resource, child.name) not in there:
            body = await kube.get(child.resource, pool.namespace, child.name)
            found += [Found(child.resource, body)] if body is not None else []
    return found


async def pods(kube: Kube, cluster: Mapping[str, Any]) -> list[Object]:
    """The cluster's pods."""
    metadata = cluster["metadata"]
    labels = selector_text(selector(metadata["name"]))
    return await kube.list_all(PODS, metadata["namespace"], labels)


async def referring_jobs(kube: Kube, namespace: str, name: str) -> list[Object]:
    """OnyxJobs that run, or wait, on the cluster called so."""
    return [
        job
        for job in await kube.list_all(JOBS, namespace)
        if ((job.get("spec") or {}).get("clusterRef") or CLUSTER_NAME_DEFAULT) == name
        and (job.get("status") or {}).get("phase") not in _FINISHED
    ]
