"""The pods of a worker pool: pure, from a pool to a pod template.

They run under the restricted Pod Security standard: a numeric user, no privileges, a read-only root
with `/tmp` to write to. What the cluster's `podTemplate` says is merged last and may change all of
it but the labels by which the pods are found. A worker leaves the cluster on SIGTERM. Where clients
come through a Service it waits before that (`preStop`), until no node sends new connections to it.

Stages, windows and jobs on Spark run in processes beside the worker, in the same container. Whoever
says how much a worker needs does not think of them, and a JVM that appears hours later would have
the container killed. So its memory is added to both, request and limit, where these name memory.
Rejected: to add it to the limit alone. A node would promise the same memory to several workers, and
evict one of them in the middle of a stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from onyx.model.cluster import Cluster, EnvSource, PodTemplate, PullSecret
from onyx.model.keys.fields import section_of
from onyx.model.keys.kubernetes import amount_of
from onyx.submission.spark_pods import WITH_JVM, workers_run_spark
from onyx_operator.clusters.environment import HTTP_PORT, METRICS_PORT, environment, pause_s
from onyx_operator.clusters.mounts import mounts
from onyx_operator.clusters.pool import Pool
from onyx_operator.clusters.trees import merged
from onyx_operator.entrances import TRANSPORT_PORT

CONTAINER = "worker"
USER_ID = 65532
CODE_ANNOTATION = "onyx.dev/code"
POD_SECURITY: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Security settings of every pod of a cluster, with that of its containers: Pod Security
`restricted`."""
CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
WITHOUT_JVM = "512Mi"
"""The child and the driver of a job are clients of a Spark Connect server: Python and Arrow."""
_MEBIBYTE = 1 << 20


def pod_template(pool: Pool) -> dict[str, Any]:
    """The template of the pool's pods."""
    ours = {"metadata": _metadata(pool), "spec": _pod(pool)}
    return with_template(ours, pool.cluster.pod_template, pool.selector)


def with_template(
    ours: Mapping[str, Any], wanted: PodTemplate, selector: Mapping[str, str]
) -> dict[str, Any]:
    """Pods as their owner wants them.

    Args:
        ours: metadata and spec.
        wanted: what is merged into it.
        selector: labels by which the pods are found, which stay as they are.
    """
    labels, annotations = wanted.metadata.labels, wanted.metadata.annotations
    theirs = {
        "metadata": {"labels": dict(labels), "annotations": dict(annotations)},
        "spec": dict(wanted.spec),
    }
    template: dict[str, Any] = merged(ours, theirs)
    template["metadata"]["labels"].update(selector)
    return template


def account_name(pool: Pool) -> str:
    """The service account of the pods."""
    account = pool.cluster.service_account
    return account.name or (pool.name if account.create else "default")


def _metadata(pool: Pool) -> dict[str, Any]:
    # New code in a ConfigMap changes the template, and so the pods are replaced one by one.
    annotations = {CODE_ANNOTATION: pool.code.digest} if pool.code else {}
    return {"labels": pool.labels, "annotations": annotations}


def _pod(pool: Pool) -> dict[str, Any]:
    secrets = [section_of(PullSecret).write(each) for each in pool.cluster.image_pull_secrets]
    return {
        "containers": [_container(pool)],
        "volumes": [mount.volume() for mount in mounts(pool)],
        "securityContext": dict(POD_SECURITY),
        **({"imagePullSecrets": secrets} if secrets else {}),
        "serviceAccountName": account_name(pool),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": pool.cluster.termination_grace_period_seconds,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": pool.selector},
            }
        ],
    }


def _container(pool: Pool) -> dict[str, Any]:
    cluster = pool.cluster
    return {
        "name": CONTAINER,
        "image": pool.image,
        **({"imagePullPolicy": policy} if (policy := cluster.image_pull_policy) else {}),
        "command": ["onyx", "worker", "--peers", str(cluster.peers), *_processes(cluster)],
        "env": environment(pool),
        **sources(pool),
        **_resources(pool),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in _ports(pool).items()
        ],
        "startupProbe": _probe("/livez", period_s=2, failures=60),
        "livenessProbe": _probe("/livez", period_s=20, failures=3),
        "readinessProbe": _probe("/readyz", period_s=3, failures=2),
        **_hooks(cluster),
        "securityContext": dict(CONTAINER_SECURITY),
        "volumeMounts": [mount.volume_mount() for mount in mounts(pool)],
        # The status of a worker that fails has the end of what it printed, and so has ours.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _processes(cluster: Cluster) -> list[str]:
    return ["--processes", str(cluster.processes)] if cluster.processes > 1 else []


def _hooks(cluster: Cluster) -> dict[str, Any]:
    # A command, and not Kubernetes' own sleep, which servers before 1.30 do not know.
    wait_s = pause_s(cluster)
    hook = {"preStop": {"exec": {"command": ["sleep", str(wait_s)]}}}
    return {"lifecycle": hook} if wait_s else {}


def _ports(pool: Pool) -> dict[str, int]:
    http = {} if pool.cluster.http is None else {"http": HTTP_PORT}
    return {"transport": TRANSPORT_PORT, "metrics": METRICS_PORT, **http}


def sources(pool: Pool) -> dict[str, Any]:
    """Where a container has further variables from, such as credentials of an object store."""
    found = [section_of(EnvSource).write(each) for each in pool.cluster.env_from]
    return {"envFrom": found} if found else {}


def _resources(pool: Pool) -> dict[str, Any]:
    wanted, more = pool.cluster.resources, _spark_memory(pool.cluster)
    found = {"requests": wanted.requests, "limits": wanted.limits}
    found = {key: _with_spark(amounts, more) for key, amounts in found.items() if amounts}
    return {"resources": found} if found else {}


def _spark_memory(cluster: Cluster) -> int | str:
    """What Spark takes beside a worker of a cluster; 0 if it runs none."""
    if not workers_run_spark(cluster):
        return 0
    if cluster.spark_memory is not None:
        return cluster.spark_memory
    return WITH_JVM if cluster.spark is None else WITHOUT_JVM


def _with_spark(amounts: Mapping[str, int | str], more: int | str) -> dict[str, int | str]:
    """Requests or limits with the memory of Spark added to theirs, if they name any."""
    found = dict(amounts)
    if "memory" in found and amount_of(more):
        total = math.ceil(amount_of(found["memory"]) + amount_of(more))
        whole, rest = divmod(total, _MEBIBYTE)
        found["memory"] = str(total) if rest else f"{whole}Mi"
    return found


def _probe(path: str, period_s: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "metrics"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }
