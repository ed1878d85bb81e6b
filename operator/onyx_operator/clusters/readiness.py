"""Whether the pods of an OnyxCluster run, and if not, why, in Kubernetes' own words. Pure.

Condition `SparkReady` is decided here: whether the Connect server answers and all of its executors
run. Spark asks for pods and says nothing of those that do not come: a stage then waits. So what
Kubernetes says of these pods is in the condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from onyx.model.cluster import SparkServer
from onyx_operator.clusters.observed import ClusterObservation
from onyx_operator.clusters.pool import SPARK_LABEL, Pool
from onyx_operator.conditions import Verdict

Object = Mapping[str, Any]
_DYNAMIC = "spark.dynamicAllocation.enabled"
_TROUBLES_MAX = 3
_OUT_OF_MEMORY = "OOMKilled"
_USUAL = ("ContainerCreating", "PodInitializing")
_LAST_LINES_MAX = 3
_LAST_CHARACTERS_MAX = 400
"""The length of what a container printed before it failed: its end."""


def spark_ready(seen: ClusterObservation, pool: Pool, wanted: SparkServer) -> Verdict:
    """The verdict on a cluster with a Spark server."""
    server = _server(seen, pool.spark_name)
    if not _answers(server):
        return _starting(seen, pool.spark_name, server)
    pods = _of_role(seen, "executor")
    running = sum((pod.get("status") or {}).get("phase") == "Running" for pod in pods)
    pending = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Pending"]
    least = 0 if wanted.conf.get(_DYNAMIC) == "true" else wanted.executors.instances
    if running >= least and not pending:
        return "True", "ServerReady", f"the Spark Connect server answers, executors: {running}"
    shown = f"{running} of {max(least, len(pods))} executors run"
    look = f"if that stays so, kubectl logs deployment/{pool.spark_name} says why"
    if pending:
        shown = f"{shown}, {len(pending)} Pending"
        look = _look("pod", str(pending[0]["metadata"]["name"]))
        if whys := troubles(pending):
            return "False", "ExecutorsPending", "; ".join([shown, *whys])
    return "False", "ExecutorsStarting", f"{shown}; {look}"


def spark_is_ready(seen: ClusterObservation, pool: Pool) -> bool:
    """Whether nothing is left to wait for."""
    wanted = pool.cluster.spark
    return wanted is None or spark_ready(seen, pool, wanted)[0] == "True"


def _starting(seen: ClusterObservation, name: str, server: Object | None) -> Verdict:
    shown = "the Spark Connect server does not answer"
    whys = [*troubles(_of_role(seen, "server")), *_refused(server)]
    if whys:
        return "False", "ServerFailing", "; ".join([shown, *whys])
    return "False", "ServerStarting", f"{shown} yet; {_look('deployment', name)}"


def _look(kind: str, name: str) -> str:
    return f"if that stays so, kubectl describe {kind} {name} says why"


def _server(seen: ClusterObservation, name: str) -> Object | None:
    found = (each for each in seen.found if each.resource.kind == "Deployment")
    return next((each.body for each in found if each.name == name), None)


def _answers(server: Object | None) -> bool:
    counts = (server or {}).get("status") or {}
    return bool(counts.get("availableReplicas", 0))


def _refused(server: Object | None) -> Iterator[str]:
    """Why its controller may make no pod: a quota, a policy."""
    for each in ((server or {}).get("status") or {}).get("conditions") or ():
        if each.get("type") == "ReplicaFailure" and each.get("status") == "True":
            yield f"{each.get('reason')}: {each.get('message')}"


def _of_role(seen: ClusterObservation, role: str) -> Sequence[Object]:
    """Pods of Spark that stay."""
    return [
        pod
        for pod in seen.spark_pods
        if (pod["metadata"].get("labels") or {}).get(SPARK_LABEL) == role
        and "deletionTimestamp" not in pod["metadata"]
    ]


def is_ready(pod: Object) -> bool:
    """Whether all of its containers do what they are for."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def troubles(pods: Sequence[Object]) -> list[str]:
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
    kinds = ("initContainerStatuses", "containerStatuses")
    for container in chain.from_iterable(status.get(each) or () for each in kinds):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason and reason not in _USUAL:
            last = (container.get("lastState") or {}).get("terminated") or {}
            ended = f" (it ended with {_ended(last)})" if "exitCode" in last else ""
            yield f"{reason}: {message}{ended}" if message else f"{reason}{ended}"
        last = (container.get("state") or {}).get("terminated") or {}
        if "running" in (container.get("state") or {}) and not container.get("ready"):
            # It runs again, and has not said yet whether it will.
            last = (container.get("lastState") or {}).get("terminated") or {}
        if last.get("exitCode"):
            yield f"it ended with {_ended(last)}"


def _ended(last: Object) -> str:
    """The exit code of a container and the last lines that it printed, which are the kubelet's
    termination message."""
    lines = [line.strip() for line in str(last.get("message") or "").splitlines()]
    printed = " / ".join([line for line in lines if line][-_LAST_LINES_MAX:])
    if len(printed) > _LAST_CHARACTERS_MAX:
        printed = f"...{printed[-_LAST_CHARACTERS_MAX:]}"
    code = str(last["exitCode"])
    code += f" ({_OUT_OF_MEMORY})" if last.get("reason") == _OUT_OF_MEMORY else ""
    return f"{code}: {printed}" if printed else code


def _unscheduled(status: Object) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield f"{condition.get('reason')}: {condition.get('message')}"
