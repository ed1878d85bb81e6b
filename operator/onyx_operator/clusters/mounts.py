"""What is mounted into the pods of a worker pool, as one table: volume and path together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from onyx_operator.clusters.pool import Pool

TLS_PATH = "/etc/onyx/tls"
HTTP_TLS_PATH = "/etc/onyx/http-tls"
ZOOKEEPER_ACCOUNT_PATH = "/etc/onyx/zookeeper"
CODE_PATH = "/opt/onyx/code"
SPARK_TOKEN_KEY = "token"  # noqa: S105 - what it is called
SPARK_TOKEN_PATH = "/etc/onyx/spark-token"  # noqa: S105 - where it is
SPARK_TOKEN_FILE = f"{SPARK_TOKEN_PATH}/{SPARK_TOKEN_KEY}"
_GROUP_MAY_READ = 0o440


class Mount(msgspec.Struct, frozen=True):
    """A volume and where the worker finds it."""

    name: str
    path: str
    source: dict[str, Any]
    """The volume, as Kubernetes takes it, without its name."""
    read_only: bool = True

    def volume(self) -> dict[str, Any]:
        """The volume, as a pod's `volumes` take it."""
        return {"name": self.name, **self.source}

    def volume_mount(self) -> dict[str, Any]:
        """The mount, as a container's `volumeMounts` take it."""
        only = {"readOnly": True} if self.read_only else {}
        return {"name": self.name, "mountPath": self.path, **only}


def mounts(pool: Pool) -> Iterator[Mount]:
    """Everything that the pool's pods mount."""
    cluster = pool.cluster
    yield from shared_mounts(pool)
    if cluster.tls is not None:
        yield Mount("tls", TLS_PATH, _secret(cluster.tls.secret_name))
    if cluster.http is not None and cluster.http.tls_secret_name is not None:
        yield Mount("http-tls", HTTP_TLS_PATH, _secret(cluster.http.tls_secret_name))
    if pool.account_secret:
        yield Mount("zookeeper-account", ZOOKEEPER_ACCOUNT_PATH, _secret(pool.account_secret))
    if cluster.spark is not None:
        yield spark_token_mount(pool)


def spark_token_mount(pool: Pool) -> Mount:
    """What a client of the Spark server shows to it."""
    return Mount("spark-token", SPARK_TOKEN_PATH, _secret(pool.spark_name))


def shared_mounts(pool: Pool) -> Iterator[Mount]:
    """What the user's code needs, wherever it runs: in workers and in Spark."""
    cluster = pool.cluster
    disk = cluster.resources.limits.get("ephemeral-storage")
    # A limit of the container alone is looked at once a minute or so, and takes the whole pod.
    scratch = {"emptyDir": {} if disk is None else {"sizeLimit": disk}}
    yield Mount("tmp", "/tmp", scratch, read_only=False)  # noqa: S108 - not ours
    if pool.code is not None:
        items = [{"key": key, "path": path} for key, path in pool.code.paths.items()]
        yield Mount(
            "code", CODE_PATH, {"configMap": {"name": pool.code.config_map, "items": items}}
        )
    if cluster.data is not None:
        claim = {"persistentVolumeClaim": {"claimName": cluster.data.claim_name}}
        yield Mount("data", cluster.data.mount_path, claim, read_only=False)


def _secret(name: str) -> dict[str, Any]:
    return {"secret": {"secretName": name, "defaultMode": _GROUP_MAY_READ}}
