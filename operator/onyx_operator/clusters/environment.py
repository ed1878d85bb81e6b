"""The variables of a worker: who it is, what follows from the cluster's keys, what its owner adds.

Three layers: identity, which nobody else may set (validation refuses it); settings that follow from
other keys, which the owner may override; the owner's own. Each name occurs once.
"""

from __future__ import annotations

from typing import Any

from onyx.model.cluster import Cluster, EnvVar
from onyx.model.keys.fields import section_of
from onyx.submission.spark_pods import workers_run_spark
from onyx_operator.clusters.mounts import (
    CODE_PATH,
    HTTP_TLS_PATH,
    SPARK_TOKEN_FILE,
    TLS_PATH,
    ZOOKEEPER_ACCOUNT_PATH,
)
from onyx_operator.clusters.pool import Pool
from onyx_operator.entrances import TRANSPORT_PORT

TRANSPORT_PORT_LAST = 7763
"""Each worker process of a pod takes the first one that is free."""
METRICS_PORT = 9600
HTTP_PORT = 7780
CONNECT_PORT = 15_002
PAUSE_S = 5
TOKEN_VARIABLE = "ONYX_SPARK_TOKEN_FILE"  # noqa: S105 - where it is
_MASTER_VARIABLE = "ONYX_SPARK_MASTER"
_TLS_FILES = {"CA_FILE": "ca.crt", "CERT_FILE": "tls.crt", "KEY_FILE": "tls.key"}

Source = str | dict[str, Any]
"""A value, or where Kubernetes takes it from."""


def environment(pool: Pool) -> list[dict[str, Any]]:
    """The variables of the worker's container, as Kubernetes takes them."""
    settings = {**_derived(pool), **pool.cluster.settings}
    own = of_owner(pool)
    overridden = {each["name"] for each in own}
    ours = _identity(pool) | {
        name: settings[name] for name in sorted(settings) if name not in overridden
    }
    return [*(_variable(name, source) for name, source in ours.items()), *own]


def pause_s(cluster: Cluster) -> int:
    """How long a worker waits before it leaves: nodes hear later than itself that it is to end."""
    served = cluster.http is not None or cluster.grpc is not None
    return min(PAUSE_S, cluster.termination_grace_period_seconds // 4) if served else 0


def of_owner(pool: Pool) -> list[dict[str, Any]]:
    """The owner's own variables."""
    return [section_of(EnvVar).write(each) for each in pool.cluster.env]


def _variable(name: str, source: Source) -> dict[str, Any]:
    return {"name": name, "value" if isinstance(source, str) else "valueFrom": source}


def _identity(pool: Pool) -> dict[str, Source]:
    """Who the worker is and whom it talks to."""
    modules = {"ONYX_MODULES": ",".join(pool.cluster.modules)} if pool.cluster.modules else {}
    http: dict[str, Source] = {}
    if pool.cluster.http is not None:
        http = {"ONYX_HTTP_BIND_HOST": "0.0.0.0", "ONYX_HTTP_PORT": str(HTTP_PORT)}  # noqa: S104
    return {
        "ONYX_TENANCY_ID": pool.tenancy_id,
        "ONYX_TENANCY_OWNER": pool.tenancy_owner,
        "ONYX_JOB_SCHEDULER": pool.cluster.job_scheduler,
        "ONYX_ZOOKEEPER_ADDRESS": pool.zookeeper_address,
        **modules,
        "ONYX_TRANSPORT_BIND_HOST": "0.0.0.0",  # noqa: S104 - a pod is reached by its address
        "ONYX_TRANSPORT_ADVERTISE_HOST": {"fieldRef": {"fieldPath": "status.podIP"}},
        "ONYX_TRANSPORT_PORT": f"{TRANSPORT_PORT}-{TRANSPORT_PORT_LAST}",
        "ONYX_TELEMETRY_METRICS_HOST": "0.0.0.0",  # noqa: S104
        "ONYX_TELEMETRY_METRICS_PORT": str(METRICS_PORT),
        **http,
    }


def _derived(pool: Pool) -> dict[str, Source]:
    """Settings that follow from other keys of the cluster."""
    cluster = pool.cluster
    # A quarter of the grace period is left to the process for its end after it has left.
    left_s = cluster.termination_grace_period_seconds - pause_s(cluster)
    leave_timeout_s = max(1, left_s * 3 // 4)
    found: dict[str, Source] = {
        "ONYX_LEAVE_TIMEOUT_S": str(leave_timeout_s),
        "ONYX_TELEMETRY_LOG_FORMAT": "json",
        # What is in segments would stand in logs, in the status of objects, and in ZooKeeper.
        "ONYX_TASK_REPORT_VALUES": "false",
        # An emptyDir, which is there as long as the pod.
        "ONYX_SUPERVISOR_RECORDER_FOLDER": "/tmp/onyx-recorders",  # noqa: S108 - not ours
    }
    if cluster.data is not None:
        found["ONYX_DATA_DIR"] = cluster.data.mount_path
    if cluster.spark is not None:
        host = f"{pool.spark_name}.{pool.namespace}.svc"
        found[_MASTER_VARIABLE] = f"sc://{host}:{CONNECT_PORT}"
        if _MASTER_VARIABLE not in cluster.settings.keys() | {each.name for each in cluster.env}:
            found[TOKEN_VARIABLE] = SPARK_TOKEN_FILE  # no other server shall see it
    if not workers_run_spark(cluster):
        found["ONYX_SPARK"] = "false"
    if pool.code is not None:
        found["PYTHONPATH"] = CODE_PATH
    if cluster.tls is not None:
        found |= _tls("ONYX_TLS")
        # Workers dial each other by address, which no certificate can name in advance.
        found["ONYX_TLS_SERVER_NAME"] = f"{pool.name}.{pool.namespace}.svc"
        found |= _tls("ONYX_ZOOKEEPER_TLS") if cluster.tls.zookeeper else {}
    if cluster.http is not None and cluster.http.tls_secret_name is not None:
        found["ONYX_HTTP_CERT_FILE"] = f"{HTTP_TLS_PATH}/tls.crt"
        found["ONYX_HTTP_KEY_FILE"] = f"{HTTP_TLS_PATH}/tls.key"
    if pool.account_secret:
        user = {"secretKeyRef": {"name": pool.account_secret, "key": "user"}}
        found["ONYX_ZOOKEEPER_AUTH_USER"] = user
        found["ONYX_ZOOKEEPER_AUTH_PASSWORD_FILE"] = f"{ZOOKEEPER_ACCOUNT_PATH}/password"
    if pool.draws_account:
        found["ONYX_ZOOKEEPER_CLOSE_ROOT"] = "never"  # what is above tenancies is the operator's
    return found


def _tls(prefix: str) -> dict[str, Source]:
    return {f"{prefix}_{key}": f"{TLS_PATH}/{file}" for key, file in _TLS_FILES.items()}
