"""A worker pool: everything that its resources are built from, gathered in one value."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from onyx.model.canonical import canonical_json
from onyx.model.cluster import Cluster
from onyx.model.manifest import API_VERSION, CLUSTER_KIND
from onyx_operator.entrances import grpc_name, http_name, pool_name

CLUSTER_LABEL = "onyx.dev/cluster"
COMPONENT_LABEL = "app.kubernetes.io/component"
SPARK_LABEL = "onyx.dev/spark"
MANAGED_BY = "onyx-operator"


class Code(msgspec.Struct, frozen=True):
    """The Python files of a ConfigMap: where each key is mounted, and a digest of all content."""

    config_map: str
    digest: str
    paths: Mapping[str, str]
    """Path below the mount by key: `flights.tasks.py` is at `flights/tasks.py`."""


class Pool(msgspec.Struct, frozen=True):
    """What an OnyxCluster asks for, with every default settled."""

    cluster: Cluster
    namespace: str
    uid: str
    tenancy_id: str
    tenancy_owner: str
    zookeeper_address: str
    image: str
    draws_account: bool = False
    """Whether its tenancy has an account of ZooKeeper, which the operator draws."""
    code: Code | None = None
    spark_role: str = ""
    """Kind and name of what Spark servers may do; empty: there can be none."""

    @property
    def name(self) -> str:
        """Name of the StatefulSet, and of what else there is one of."""
        return pool_name(self.cluster.name)

    @property
    def selector(self) -> dict[str, str]:
        """Labels that only this pool's pods have; they can never change."""
        return selector(self.cluster.name)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of everything that belongs to the pool."""
        return {
            **self.selector,
            "app.kubernetes.io/instance": self.cluster.name,
            "app.kubernetes.io/managed-by": MANAGED_BY,
        }

    @property
    def http_name(self) -> str:
        """Name of the Service for requests over HTTP."""
        return http_name(self.cluster.name)

    @property
    def grpc_name(self) -> str:
        """Name of the Service for requests over gRPC."""
        return grpc_name(self.cluster.name)

    @property
    def spark_name(self) -> str:
        """Name of everything of the Spark server."""
        return f"{self.cluster.name}-spark"

    @property
    def account_secret(self) -> str:
        """The Secret with the account of ZooKeeper that workers have; empty: they have none. What
        the operator draws is another Secret for another tenancy."""
        named = self.cluster.zookeeper.auth_secret
        drawn = f"{self.name}-zookeeper-{digest_of(self.tenancy_id)}" if self.draws_account else ""
        return named or drawn

    def spark_selector(self, role: str = "") -> dict[str, str]:
        """Labels that only pods of Spark have: of the `server`, of an `executor`, or of both."""
        of_role = {SPARK_LABEL: role} if role else {}
        return {**selector(self.cluster.name), COMPONENT_LABEL: "spark", **of_role}

    @property
    def spark_labels(self) -> dict[str, str]:
        """Labels of everything that belongs to Spark."""
        return {**self.labels, **self.spark_selector()}

    @property
    def owner(self) -> dict[str, Any]:
        """The owner reference of everything that belongs to the pool."""
        return {
            "apiVersion": API_VERSION,
            "kind": CLUSTER_KIND,
            "name": self.cluster.name,
            "uid": self.uid,
            "controller": True,
        }


def selector(cluster: str) -> dict[str, str]:
    """Labels of the pods of the cluster called so."""
    return {
        "app.kubernetes.io/name": "onyx",
        COMPONENT_LABEL: "worker",
        CLUSTER_LABEL: cluster,
    }


def selector_text(labels: Mapping[str, str]) -> str:
    """Labels as a query of the API takes them."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def code_of(config_map: Mapping[str, Any]) -> Code:
    """The code in a ConfigMap.

    Keys of a ConfigMap have no slashes, so the dots of a Python file's name are those of its
    module; other files stay where they are.
    """
    name = config_map["metadata"]["name"]
    content = {**config_map.get("data", {}), **config_map.get("binaryData", {})}
    return Code(name, digest_of(content), {key: _path(key) for key in sorted(content)})


def _path(key: str) -> str:
    module, dot, ending = key.rpartition(".")
    if ending != "py" or not all(part.isidentifier() for part in module.split(".")):
        return key
    return module.replace(".", "/") + dot + ending


def digest_of(content: Any) -> str:
    """Sixteen characters that differ when JSON data differs."""
    digest = hashlib.sha256(canonical_json(content)).digest()
    return base64.b32encode(digest).decode().lower()[:16]
