"""Step 4 for an OnyxCluster: its status, from what was observed and what went wrong. Pure.

Two conditions: `Reconciled`, whether all objects are as the spec says, and `Ready`, whether all
workers have joined and are up to date; with a Spark server also `SparkReady`. Why they are not is
found in the pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onyx_operator.clusters.observed import Observed, spark_is_ready
from onyx_operator.clusters.plan import Plan
from onyx_operator.clusters.pool import Pool, selector, selector_text
from onyx_operator.clusters.spec import DELETING, Refusal
from onyx_operator.conditions import Verdict, dated
from onyx_operator.kube import timestamp

Object = Mapping[str, Any]
_TROUBLES_MAX = 3
_USUAL = ("ContainerCreating", "PodInitializing")
_LAST_LINES_MAX = 3
_LAST_CHARACTERS_MAX = 400
"""Of what a worker printed before it failed: its end."""


def status(seen: Observed, plan: Plan) -> dict[str, Any]:
    """The whole status of a cluster.

    Args:
        seen: what there is.
        plan: the last plan, as far as it was carried out.
    """
    trouble, metadata = plan.trouble, seen.body["metadata"]
    before = seen.body.get("status") or {}
    counts = (seen.workers or {}).get("status") or {}
    ready = _count(counts, "readyReplicas")
    verdicts = {
        "Reconciled": _reconciled(trouble),
        "Ready": _ready(seen, trouble, counts),
    }
    pool = seen.wanted if isinstance(seen.wanted, Pool) else None
    if pool is not None and pool.cluster.spark is not None:
        verdicts["SparkReady"] = _spark_ready(seen, pool.spark_name)
    return {
        "observedGeneration": metadata["generation"],
        **_from_spec(pool, ready, before),
        "replicas": _count(counts, "replicas"),
        "readyReplicas": ready,
        "updatedReplicas": _count(counts, "updatedReplicas"),
        "selector": selector_text(selector(metadata["name"])),
        "conditions": dated(verdicts, before, metadata["generation"], timestamp(seen.now_s)),
    }


def _from_spec(pool: Pool | None, ready: int, before: Object) -> dict[str, Any]:
    """The fields that follow from a valid spec; while it is invalid, as they were."""
    if pool is None:
        return {key: before[key] for key in ("tenancyId", "peers") if key in before}
    return {"tenancyId": pool.tenancy_id, "peers": ready * pool.cluster.peers_per_worker}


def _count(counts: Object, key: str) -> int:
    value = counts.get(key)
    return value if isinstance(value, int) else 0


def _reconciled(trouble: Refusal | None) -> Verdict:
    if trouble is None:
        return "True", "Applied", "all objects of the cluster are as its spec says"
    return "False", trouble.reason, trouble.message


def _ready(seen: Observed, trouble: Refusal | None, counts: Object) -> Verdict:
    if trouble is not None and trouble.reason == DELETING:
        return "False", DELETING, trouble.message
    if seen.workers is None:
        why = trouble.message if trouble else "its StatefulSet is not there yet"
        return "False", "NoWorkers", why
    metadata, replicas = seen.workers["metadata"], seen.workers["spec"].get("replicas", 1)
    if _count(counts, "observedGeneration") < metadata.get("generation", 0):
        return "False", "Updating", "the StatefulSet's controller has not seen the last change yet"
    ready, updated = _count(counts, "readyReplicas"), _count(counts, "updatedReplicas")
    shown = f"{ready} of {replicas} workers are ready"
    if trouble is not None:
        return "False", trouble.reason, f"{shown}, as an earlier spec had them: {trouble.message}"
    if _count(counts, "replicas") > replicas:
        return (
            "False",
            "ScalingDown",
            f"{_count(counts, 'replicas') - replicas} workers are leaving",
        )
    if ready >= replicas and updated >= replicas:
        return "True", "WorkersReady" if replicas else "NoWorkersWanted", shown
    troubles = _troubles(seen.pods)
    if troubles:
        return "False", "WorkersFailing", "; ".join([shown, *troubles])
    if ready >= replicas:
        return "False", "Updating", f"{shown}, {updated} are up to date"
    return "False", "WorkersStarting", f"{shown}; {_where_to_look(seen, counts)}"


def _spark_ready(seen: Observed, name: str) -> Verdict:
    if spark_is_ready(seen, name):
        return "True", "ServerReady", "the Spark Connect server answers"
    look = f"if that stays so, kubectl describe deployment {name} says why"
    return "False", "ServerStarting", f"the Spark Connect server does not answer yet; {look}"


def _where_to_look(seen: Observed, counts: Object) -> str:
    """The object that waits: some reasons (a missing Secret, a policy that refuses pods) are only
    in its events."""
    assert seen.workers is not None
    waiting = [str(pod["metadata"]["name"]) for pod in seen.pods if not _is_ready(pod)]
    if _count(counts, "replicas") < seen.workers["spec"].get("replicas", 1) or not waiting:
        what = f"statefulset {seen.workers['metadata']['name']}"
    else:
        what = f"pod {min(waiting)}"
    return f"if that stays so, kubectl describe {what} says why"


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _troubles(pods: Sequence[Object]) -> list[str]:
    """Kubernetes' reasons why pods do not start, each with the pods that have it."""
    found: dict[str, list[str]] = {}
    for pod in sorted(pods, key=lambda each: str(each["metadata"]["name"])):
        shown = pod.get("status") or {}
        for why in (*_waiting(shown), *_unscheduled(shown)):
            found.setdefault(why, []).append(str(pod["metadata"]["name"]))
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}"
        for why, names in list(found.items())[:_TROUBLES_MAX]
    ]


def _waiting(status: Object) -> Iterator[str]:
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason and reason not in _USUAL:
            last = (container.get("lastState") or {}).get("terminated") or {}
            ended = f" (it ended with {_ended(last)})" if "exitCode" in last else ""
            yield f"{reason}: {message}{ended}" if message else f"{reason}{ended}"
        last = (container.get("state") or {}).get("terminated") or {}
        if last.get("exitCode"):
            yield f"it ended with {_ended(last)}"


def _ended(last: Object) -> str:
    """The exit code of a container and the last lines that it printed, which are the kubelet's
    termination message."""
    lines = [line.strip() for line in str(last.get("message") or "").splitlines()]
    printed = " / ".join([line for line in lines if line][-_LAST_LINES_MAX:])
    if len(printed) > _LAST_CHARACTERS_MAX:
        printed = f"...{printed[-_LAST_CHARACTERS_MAX:]}"
    return f"{last['exitCode']}: {printed}" if printed else str(last["exitCode"])


def _unscheduled(status: Object) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"{condition.get('reason')}: {condition.get('message')}"
