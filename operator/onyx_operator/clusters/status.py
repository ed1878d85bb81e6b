"""Step 4 for an OnyxCluster: its status, from what was observed and what went wrong, and the events
that follow from its change, one for each condition with a new reason. Pure.

Conditions: `Reconciled`, whether all objects are as the spec says, and `Ready`, whether all workers
have joined and are up to date; with a Spark server also `SparkReady`. `Stable` says whether worker
processes die, `ZooKeeperReachable` whether its log is, `HasRoom` whether jobs fit into what the
tenancy may hold there. Why workers are not ready is found in the pods, and in what these say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onyx.log.tenancy import NEARLY_FULL, Usage
from onyx.reports.deaths import reason, sentence
from onyx_operator.clusters.observed import ClusterObservation
from onyx_operator.clusters.plan import ClusterPlan
from onyx_operator.clusters.pool import Pool, selector, selector_text
from onyx_operator.clusters.readiness import is_ready, spark_ready, troubles
from onyx_operator.clusters.spec import DELETING, ClusterRefusal
from onyx_operator.conditions import KubeEvent, Verdict, by_type, dated
from onyx_operator.kube import timestamp

Object = Mapping[str, Any]
_QUIET = (
    "Connecting",
    "Connected",
    "WorkersStarting",
    "Updating",
    "ScalingDown",
    "NoWorkers",
    "Applied",
    "NoDeaths",
    "ServerStarting",
    "ExecutorsStarting",
)
"""Reasons that come and go with any change, and are in the status."""


def status(seen: ClusterObservation, plan: ClusterPlan) -> dict[str, Any]:
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
        verdicts["SparkReady"] = spark_ready(seen, pool, pool.cluster.spark)
    if pool is not None:
        verdicts["Stable"] = _stable(seen)
        verdicts["ZooKeeperReachable"] = _zookeeper(seen)
    if pool is not None and seen.usage is not None and seen.usage.bytes is not None:
        verdicts["HasRoom"] = _has_room(seen.usage)
    return {
        "observedGeneration": metadata["generation"],
        **_from_spec(pool, ready, before),
        **({"tenancyHolder": str(trouble.holder)} if trouble and trouble.holder else {}),
        "replicas": _count(counts, "replicas"),
        "readyReplicas": ready,
        "updatedReplicas": _count(counts, "updatedReplicas"),
        "selector": selector_text(selector(metadata["name"])),
        "conditions": dated(verdicts, before, metadata["generation"], timestamp(seen.now_s)),
    }


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[KubeEvent]:
    """The events between two statuses."""
    old, new = by_type(before), by_type(after)
    for name, condition in new.items():
        if name != "Reconciled" and condition["reason"] == new["Reconciled"]["reason"]:
            continue  # for that reason, which is an event already
        known = old.get(name, {})
        # How many workers are ready, and how long a crashing one waits, is no news each time.
        compared = ("reason", "message") if name == "Reconciled" else ("reason",)
        same = all(known.get(key) == condition[key] for key in compared)
        if not same and condition["reason"] not in _QUIET:
            yield KubeEvent(
                condition["reason"], condition["message"], condition["status"] == "False"
            )


def _from_spec(pool: Pool | None, ready: int, before: Object) -> dict[str, Any]:
    """The fields that follow from a valid spec; while it is invalid, as they were."""
    if pool is None:
        kept = ("tenancyId", "zookeeperAddress", "peers")
        return {key: before[key] for key in kept if key in before}
    return {
        "tenancyId": pool.tenancy_id,
        "zookeeperAddress": pool.zookeeper_address,
        "peers": ready * pool.cluster.peers,
    }


def _count(counts: Object, key: str) -> int:
    value = counts.get(key)
    return value if isinstance(value, int) else 0


def _reconciled(trouble: ClusterRefusal | None) -> Verdict:
    if trouble is None:
        return "True", "Applied", "all objects of the cluster are as its spec says"
    return "False", trouble.reason, trouble.message


def _ready(seen: ClusterObservation, trouble: ClusterRefusal | None, counts: Object) -> Verdict:
    if trouble is not None and (seen.workers is None or trouble.reason == DELETING):
        return "False", trouble.reason, trouble.message
    if seen.workers is None:
        return "False", "NoWorkers", "its StatefulSet is not there yet"
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
    whys = troubles(seen.pods)
    if whys:
        return "False", "WorkersFailing", "; ".join([shown, *whys])
    if ready >= replicas:
        return "False", "Updating", f"{shown}, {updated} are up to date"
    return "False", "WorkersStarting", "; ".join((shown, *seen.said, _where_to_look(seen, counts)))


def _stable(seen: ClusterObservation) -> Verdict:
    """Whether processes die in pods that go on: their supervisors start them again."""
    if not seen.deaths:
        return "True", "NoDeaths", "no worker process has died lately"
    deaths = sorted(seen.deaths, key=lambda each: each.at_ms)
    return "False", reason(deaths), sentence(deaths)


def _zookeeper(seen: ClusterObservation) -> Verdict:
    """Whether the operator reaches the log of the cluster; why not, its servers say, too."""
    trouble = seen.trouble
    if trouble is None:
        return "True", "Connected", "its log is followed"
    if not trouble.cause:
        return "Unknown", trouble.reason, trouble.message
    return "False", trouble.cause, f"{trouble.message}; jobs go on when it is there again"


def _has_room(usage: Usage) -> Verdict:
    """Whether jobs fit into what the tenancy may hold in ZooKeeper. The message has no exact
    number, which would be another one each time."""
    most = f"the {usage.bytes_max:,} bytes that its tenancy may hold in ZooKeeper"
    if not usage.is_nearly_full:
        return "True", "Room", f"less than {NEARLY_FULL:.0%} of {most} are used"
    message = (
        f"{NEARLY_FULL:.0%} of {most} are used, or more, and jobs that do not fit are refused: "
        "delete OnyxJobs that are not needed, or raise ONYX_LOG_TENANCY_BYTES_MAX of the operator"
    )
    return "False", "TenancyFull", message


def _where_to_look(seen: ClusterObservation, counts: Object) -> str:
    """The object that waits: some reasons (a missing Secret, a policy that refuses pods) are only
    in its events."""
    assert seen.workers is not None
    waiting = [str(pod["metadata"]["name"]) for pod in seen.pods if not is_ready(pod)]
    if _count(counts, "replicas") < seen.workers["spec"].get("replicas", 1) or not waiting:
        what = f"statefulset {seen.workers['metadata']['name']}"
    else:
        what = f"pod {min(waiting)}"
    return f"if that stays so, kubectl describe {what} says why"
