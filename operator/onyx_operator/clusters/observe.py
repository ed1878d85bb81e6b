"""Step 1 for an OnyxCluster: everything that a plan is made from, read from the API server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from onyx.model.declaration import CLUSTER_NAME_DEFAULT
from onyx.settings import Settings
from onyx_operator.clusters.environment import METRICS_PORT
from onyx_operator.clusters.observed import ClusterObservation, ExistingObject
from onyx_operator.clusters.pool import CLUSTER_LABEL, Pool, selector, selector_text
from onyx_operator.clusters.readiness import is_ready
from onyx_operator.clusters.resources import STATEFUL_SETS, ChildObject, children, kinds
from onyx_operator.clusters.spec import ClusterRefusal, deleting, read_spec, taken
from onyx_operator.context import OperatorProcess
from onyx_operator.entrances import pool_name
from onyx_operator.kube import (
    CLUSTERS,
    CONFIG_MAPS,
    JOBS,
    SECRETS,
    Conflict,
    Kube,
    KubeError,
    Object,
    Resource,
)
from onyx_operator.owners import Tenant
from onyx_operator.pages import obstacles
from onyx_operator.tenancies import refused_for

PODS = Resource("v1", "Pod", "pods")
_FINISHED = ("Completed", "Stopped", "Failed", "Killed")


async def observe(operator: OperatorProcess, body: Object) -> ClusterObservation:
    """Read everything that a plan for a cluster is made from.

    Raises:
        KubeError, Unavailable: the API server refuses, or cannot be reached.
    """
    kube, metadata = operator.kube, body["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    wanted = await _wanted(operator, body)
    if isinstance(wanted, ClusterRefusal):
        there = await kube.get(STATEFUL_SETS, namespace, pool_name(name))
        found = [] if there is None else [ExistingObject(STATEFUL_SETS, there)]
    else:
        found = await _found(kube, wanted)
    ours = (each for each in found if _is_pool(each, body))
    workers = next((each.body for each in ours), None)
    pods: list[Object] = []
    if workers is not None and not _full(workers):
        pods = await kube.list_all(PODS, namespace, selector_text(selector(name)))
    unready = [
        (str(each["metadata"]["name"]), (str(each["status"]["podIP"]), METRICS_PORT))
        for each in pods
        if (each.get("status") or {}).get("podIP") and not is_ready(each)
    ]
    said = await obstacles(unready) if unready else []
    of_spark: list[Object] = []
    if isinstance(wanted, Pool) and wanted.cluster.spark is not None:
        of_spark = await kube.list_all(PODS, namespace, selector_text(wanted.spark_selector()))
    return ClusterObservation(body, wanted, time.time(), found, workers, pods, of_spark, said=said)


async def worker_pages(kube: Kube, log: Settings) -> list[tuple[str, int]]:
    """Where the workers that have a log serve metrics, as the API server knows their pods: what a
    log says of addresses, its tenant has written.

    Raises:
        KubeError, Unavailable: the API server refuses, or cannot be reached.
    """
    tenant = Tenant.read(log.tenancy_owner)
    if tenant is None:
        return []
    pods = await kube.list_all(PODS, tenant.namespace, selector_text(selector(tenant.name)))
    addresses = ((pod.get("status") or {}).get("podIP") for pod in pods)
    return [(str(each), METRICS_PORT) for each in addresses if each]


async def referring_jobs(kube: Kube, namespace: str, name: str) -> list[Object]:
    """OnyxJobs that run, or wait, on the cluster called so."""
    return [
        job
        for job in await kube.list_all(JOBS, namespace)
        if ((job.get("spec") or {}).get("clusterRef") or CLUSTER_NAME_DEFAULT) == name
        and (job.get("status") or {}).get("phase") not in _FINISHED
    ]


async def _wanted(operator: OperatorProcess, body: Object) -> Pool | ClusterRefusal:
    metadata = body["metadata"]
    if "deletionTimestamp" in metadata:
        jobs = await referring_jobs(operator.kube, metadata["namespace"], metadata["name"])
        return deleting([str(job["metadata"]["name"]) for job in jobs])
    code = await _code_config_map(operator.kube, body)
    found = read_spec(body, code, operator.settings)
    if isinstance(found, ClusterRefusal):
        return found
    before = await _holder_before(operator, body)
    # From here on nothing waits, so that of two clusters only one can claim the same log.
    holder = operator.tenancies.holder(body, *before)
    if holder is not None:
        return taken(found, holder)
    operator.tenancies.claim(body)
    return found


async def _holder_before(operator: OperatorProcess, body: Object) -> list[Object]:
    """The cluster for which this one was refused, if it is still there."""
    named = refused_for(body)
    if named is None:
        return []
    there = await operator.kube.get(CLUSTERS, named.namespace, named.name)
    return [] if there is None else [there]


async def _code_config_map(kube: Kube, body: Mapping[str, Any]) -> Object | None:
    """The ConfigMap that `spec.code` names; None when it names none, or there is none."""
    code = (body.get("spec") or {}).get("code")
    name = code.get("configMap") if isinstance(code, Mapping) else None
    if not isinstance(name, str) or not name:
        return None
    return await kube.get(CONFIG_MAPS, body["metadata"]["namespace"], name)


async def _found(kube: Kube, pool: Pool) -> list[ExistingObject]:
    labels = f"{CLUSTER_LABEL}={pool.cluster.name}"
    found = [
        ExistingObject(resource, body)
        for resource in kinds(pool)
        for body in await kube.list_all(resource, pool.namespace, labels)
    ]
    there = {(each.resource, each.name) for each in found}
    for child in children(pool):
        if (child.resource, child.name) not in there:
            body = await _named(kube, pool, child)
            found += [ExistingObject(child.resource, body)] if body is not None else []
    return found


async def _named(kube: Kube, pool: Pool, child: ChildObject) -> Object | None:
    """An object by its name. The operator may create Secrets and read none: whether there is one
    says a trial to create it, and it counts as ours."""
    if child.resource != SECRETS:
        return await kube.get(child.resource, pool.namespace, child.name)
    try:
        await kube.create(child.resource, child.body, dry_run=True)
    except Conflict:
        return child.body
    except KubeError:
        pass  # creating it says why
    return None


def _is_pool(found: ExistingObject, body: Mapping[str, Any]) -> bool:
    metadata = body["metadata"]
    named = found.resource == STATEFUL_SETS and found.name == pool_name(metadata["name"])
    return named and found.belongs_to(metadata["uid"])


def _full(workers: Mapping[str, Any]) -> bool:
    counts = workers.get("status") or {}
    return bool(counts.get("readyReplicas", 0) >= workers["spec"].get("replicas", 1))
