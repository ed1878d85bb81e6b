"""One look at an OnyxCluster: read, plan, act, tell. The edge around the pure parts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from onyx_operator.clusters import observe
from onyx_operator.clusters.check import as_declared
from onyx_operator.clusters.events import news
from onyx_operator.clusters.plan import Action, Apply, Delete, Found, Leave, plan
from onyx_operator.clusters.pool import Pool, pool_name
from onyx_operator.clusters.resources import STATEFUL_SETS
from onyx_operator.clusters.spec import Refusal, wanted
from onyx_operator.clusters.status import Outcome, deleting, status
from onyx_operator.conditions import change
from onyx_operator.context import Operator
from onyx_operator.kube import CLUSTERS, Kube, KubeError, NotFound, Object, timestamp
from onyx_operator.work_queue import Key


async def reconcile(operator: Operator, key: Key) -> None:
    """Have all of a cluster be as its spec says, and say how it is.

    Raises:
        Unavailable, KubeError: the API server cannot be reached, or refuses.
    """
    if operator.clusters.store.get(key) is None:
        return  # what is gone, perhaps with our right to ask for it
    cluster = await operator.kube.get(CLUSTERS, key.namespace, key.name)
    if cluster is None:
        return
    target, refused = await _target(operator, cluster), list[KubeError]()
    if isinstance(target, Refusal):
        await _tell(operator, cluster, None, target)
        return
    actions = plan(target, await observe.found_objects(operator.kube, target))
    for action in actions:
        try:
            await _act(operator.kube, cluster, action)
        except KubeError as error:
            refused.append(error)
    trouble = _trouble(refused) or _in_the_way(actions)
    await _tell(operator, cluster, target, trouble)
    if refused:
        raise refused[0]


async def _target(operator: Operator, cluster: Object) -> Pool | Refusal:
    """The pool that there is to be."""
    kube, settings, metadata = operator.kube, operator.settings, cluster["metadata"]
    if "deletionTimestamp" in metadata:
        jobs = await observe.referring_jobs(kube, metadata["namespace"], metadata["name"])
        return deleting([str(job["metadata"]["name"]) for job in jobs])
    code = await observe.code_config_map(kube, cluster)
    return wanted(cluster, code, settings.engine, settings.clusters.worker_image)


def _trouble(refused: Sequence[KubeError]) -> Refusal | None:
    if not refused:
        return None
    return Refusal("ApplyFailed", "; ".join(as_declared(str(error)) for error in refused))


def _in_the_way(actions: Sequence[Action]) -> Refusal | None:
    left = [each for each in actions if isinstance(each, Leave)]
    if not left:
        return None
    told = "; ".join(f"{each.resource.kind} {each.name} {each.why}" for each in left)
    return Refusal("NameTaken", told)


async def _act(kube: Kube, cluster: Object, action: Action) -> None:
    if isinstance(action, Apply):
        child = action.child
        now = await kube.apply(child.resource, child.body)
        # What others keep setting back, or the server drops, changes nothing and is no news.
        if now["metadata"]["resourceVersion"] != action.version:
            verb = "Updated" if action.version else "Created"
            await kube.event(cluster, verb, f"{verb.lower()} {child.resource.kind} {child.name}")
    elif isinstance(action, Delete):
        namespace = cluster["metadata"]["namespace"]
        await kube.delete(action.resource, namespace, action.name, action.uid)
        await kube.event(cluster, "Deleted", f"deleted {action.resource.kind} {action.name}")


async def _tell(
    operator: Operator, cluster: Object, pool: Pool | None, trouble: Refusal | None
) -> None:
    """Write the status if it has changed, and events about what is new in it."""
    kube, metadata = operator.kube, cluster["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    workers = await kube.get(STATEFUL_SETS, namespace, pool_name(name))
    if workers is not None and not Found(STATEFUL_SETS, workers).belongs_to(metadata["uid"]):
        workers = None
    pods = await observe.pods(kube, cluster) if workers is not None and not _full(workers) else []
    outcome = Outcome(trouble, pool, workers, pods)
    before = cluster.get("status") or {}
    after = status(cluster, outcome, timestamp(time.time()))
    difference = change(before, after)
    if not difference:
        return
    try:
        await kube.patch_status(CLUSTERS, namespace, name, difference)
    except NotFound:
        return
    for reason, message, warning in news(before, after):
        await kube.event(cluster, reason, message, warning=warning)


def _full(workers: Mapping[str, Any]) -> bool:
    told = workers.get("status") or {}
    return bool(told.get("readyReplicas", 0) >= workers["spec"].get("replicas", 1))
