"""The status of an OnyxCluster: what its conditions and counters say.

Two conditions: `Reconciled`, whether all objects are as the spec says, and `Ready`, whether so are
all workers, up to date and joined; why not is found in the pods and told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onyx_operator.clusters.pool import Pool, selector, selector_text
from onyx_operator.clusters.spec import Refusal
from onyx_operator.conditions import Verdict, dated

Object = Mapping[str, Any]
_TROUBLES_MAX = 3
_USUAL = ("ContainerCreating", "PodInitializing")
_LAST_LINES_MAX = 3
_LAST_CHARACTERS_MAX = 400
"""Of what a worker printed before it failed: its end."""
_DELETING = "Deleting"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reconciliation has come to."""

    trouble: Refusal | None
    """Why not all is as it should be; None: it is."""
    pool: Pool | None
    """What the cluster asks for; None when that cannot be told."""
    workers: Object | None
    """The StatefulSet, as it is now."""
    pods: Sequence[Object] = ()
    """The pods; looked at only when not all workers are ready."""


def status(cluster: Object, outcome: Outcome, now: str) -> dict[str, Any]:
    """The whole status after a reconciliation.

    Args:
        cluster: the OnyxCluster object.
        now: the time, as the API writes it.
    """
    metadata, before = cluster["metadata"], cluster.get("status") or {}
    told = (outcome.workers or {}).get("status") or {}
    ready = _count(told, "readyReplicas")
    verdicts = {
        "Reconciled": _reconciled(outcome),
        "Ready": _ready(outcome, told),
    }
    return {
        "observedGeneration": metadata["generation"],
        **_from_spec(outcome.pool, ready, before),
        "replicas": _count(told, "replicas"),
        "readyReplicas": ready,
        "updatedReplicas": _count(told, "updatedReplicas"),
        "selector": selector_text(selector(metadata["name"])),
        "conditions": dated(verdicts, before, metadata["generation"], now),
    }


def _from_spec(pool: Pool | None, ready: int, before: Object) -> dict[str, Any]:
    """What needs a spec that can be read; until it can, as it was."""
    if pool is None:
        return {key: before[key] for key in ("tenancyId", "peers") if key in before}
    return {"tenancyId": pool.tenancy_id, "peers": ready * pool.cluster.peers_per_worker}


def deleting(jobs: Sequence[str]) -> Refusal:
    """What a cluster says that is being deleted: which jobs lose their workers."""
    told = f"; jobs that lose their workers: {', '.join(jobs)}" if jobs else ""
    return Refusal(_DELETING, f"the cluster is being deleted{told}")


def _count(told: Object, key: str) -> int:
    value = told.get(key)
    return value if isinstance(value, int) else 0


def _reconciled(outcome: Outcome) -> Verdict:
    if outcome.trouble is None:
        return "True", "Applied", "all objects of the cluster are as its spec says"
    return "False", outcome.trouble.reason, outcome.trouble.message


def _ready(outcome: Outcome, told: Object) -> Verdict:
    if outcome.trouble is not None and outcome.trouble.reason == _DELETING:
        return "False", _DELETING, outcome.trouble.message
    if outcome.workers is None:
        why = outcome.trouble.message if outcome.trouble else "its StatefulSet is not there yet"
        return "False", "NoWorkers", why
    metadata, spec = outcome.workers["metadata"], outcome.workers["spec"]
    replicas = spec.get("replicas", 1)
    if _count(told, "observedGeneration") < metadata.get("generation", 0):
        return "False", "Updating", "the StatefulSet's controller has not seen the last change yet"
    ready, updated = _count(told, "readyReplicas"), _count(told, "updatedReplicas")
    counts = f"{ready} of {replicas} workers are ready"
    if outcome.trouble is not None:
        counts += f", as an earlier spec had them: {outcome.trouble.message}"
        return "False", outcome.trouble.reason, counts
    if _count(told, "replicas") > replicas:
        return "False", "ScalingDown", f"{_count(told, 'replicas') - replicas} workers are leaving"
    if ready >= replicas and updated >= replicas:
        return "True", "WorkersReady" if replicas else "NoWorkersWanted", counts
    troubles = _troubles(outcome.pods)
    if troubles:
        return "False", "WorkersFailing", "; ".join([counts, *troubles])
    if ready >= replicas:
        return "False", "Updating", f"{counts}, {updated} are up to date"
    return "False", "WorkersStarting", f"{counts}; {_where_to_look(outcome, told)}"


def _where_to_look(outcome: Outcome, told: Object) -> str:
    """What only events tell (a Secret that is not there, a policy that refuses pods) is found by
    looking at the object that waits."""
    assert outcome.workers is not None
    waiting = [str(pod["metadata"]["name"]) for pod in outcome.pods if not _is_ready(pod)]
    if _count(told, "replicas") < outcome.workers["spec"].get("replicas", 1) or not waiting:
        what = f"statefulset {outcome.workers['metadata']['name']}"
    else:
        what = f"pod {min(waiting)}"
    return f"if that stays so, kubectl describe {what} says why"


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _troubles(pods: Sequence[Object]) -> list[str]:
    """What Kubernetes says of pods that will not start by themselves, each thing once."""
    found: dict[str, list[str]] = {}
    for pod in sorted(pods, key=lambda each: str(each["metadata"]["name"])):
        told = pod.get("status") or {}
        for why in (*_waiting(told), *_unscheduled(told)):
            found.setdefault(why, []).append(str(pod["metadata"]["name"]))
    return [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {why}"
        for why, names in list(found.items())[:_TROUBLES_MAX]
    ]


def _waiting(told: Object) -> Iterator[str]:
    for container in told.get("containerStatuses") or ():
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
    told = " / ".join([line for line in lines if line][-_LAST_LINES_MAX:])
    if len(told) > _LAST_CHARACTERS_MAX:
        told = f"...{told[-_LAST_CHARACTERS_MAX:]}"
    return f"{last['exitCode']}: {told}" if told else str(last["exitCode"])


def _unscheduled(told: Object) -> Iterator[str]:
    for condition in told.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"{condition.get('reason')}: {condition.get('message')}"
