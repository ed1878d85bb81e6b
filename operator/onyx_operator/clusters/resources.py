"""The objects of a worker pool: pure builders, from a pool to what the API server is to have.

A StatefulSet, because its pods keep their names and are replaced one at a time; all of them start
and stop at once (`Parallel`), since no worker is master of another. The headless Service is for
people and scrapers: workers find each other through the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onyx.model.cluster import GrpcRequests, HttpRequests, SparkServer
from onyx_operator.clusters import spark
from onyx_operator.clusters.egress import limited, to, to_zookeeper
from onyx_operator.clusters.environment import (
    CONNECT_PORT,
    HTTP_PORT,
    METRICS_PORT,
    TRANSPORT_PORT_LAST,
)
from onyx_operator.clusters.pods import account_name, pod_template
from onyx_operator.clusters.pool import Pool, digest_of
from onyx_operator.entrances import TRANSPORT_PORT
from onyx_operator.kube import CONFIG_MAPS, DEPLOYMENTS, SECRETS, Resource

STATEFUL_SETS = Resource("apps/v1", "StatefulSet", "statefulsets")
SERVICES = Resource("v1", "Service", "services")
ACCOUNTS = Resource("v1", "ServiceAccount", "serviceaccounts")
BUDGETS = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
POLICIES = Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
BINDINGS = Resource("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
WORKER_KINDS = (ACCOUNTS, SERVICES, POLICIES, BUDGETS, STATEFUL_SETS)
SPARK_KINDS = (BINDINGS, CONFIG_MAPS, DEPLOYMENTS)
"""What the operator sees only where it may run Spark servers."""
_ORDER = (
    ACCOUNTS,
    BINDINGS,
    SECRETS,
    CONFIG_MAPS,
    SERVICES,
    POLICIES,
    BUDGETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
)
"""In which the objects of a pool are made."""

_PODS_KEYS = {STATEFUL_SETS: "spec.podTemplate", DEPLOYMENTS: "spec.spark.podTemplate"}

APPLIED_ANNOTATION = "onyx.dev/applied"
"""Digest of what was applied: it differs when a field is no longer applied that once was."""
ACCOUNT_TYPE = "onyx.dev/zookeeper-account"
"""The type of a Secret with the account of a tenancy."""
REVISIONS_KEPT = 5


class ChildObject(msgspec.Struct, frozen=True):
    """One object of a pool, as it is to be."""

    resource: Resource
    body: dict[str, Any]
    pods_key: str = ""
    """The key of the spec that is merged into its pods, if it has any."""

    @property
    def name(self) -> str:
        """The name of the object; unique in its kind."""
        return str(self.body["metadata"]["name"])

    @property
    def account(self) -> str:
        """The ServiceAccount of its pods; empty when it has none."""
        if not self.pods_key:
            return ""
        return str(self.body["spec"]["template"]["spec"].get("serviceAccountName", ""))


def children(pool: Pool) -> tuple[ChildObject, ...]:
    """Everything that the pool is made of."""
    cluster = pool.cluster
    found = [
        (SERVICES, _service(pool)),
        (STATEFUL_SETS, _stateful_set(pool)),
    ]
    if cluster.service_account.create:
        found.append((ACCOUNTS, _account(pool)))
    if cluster.network_policy.enabled:
        found.append((POLICIES, _policy(pool)))
    if cluster.pod_disruption_budget.enabled:
        found.append((BUDGETS, _budget(pool)))
    if cluster.http is not None:
        found.append((SERVICES, _http_service(pool, cluster.http)))
    if cluster.grpc is not None:
        found.append((SERVICES, _grpc_service(pool, cluster.grpc)))
    if pool.draws_account:
        found.append((SECRETS, _account_secret(pool)))
    if cluster.spark is not None:
        found += _spark(pool, cluster.spark)
    made = [ChildObject(kind, _stamped(body), _PODS_KEYS.get(kind, "")) for kind, body in found]
    return tuple(sorted(made, key=lambda child: _ORDER.index(child.resource)))


def trials(pool: Pool) -> tuple[ChildObject, ...]:
    """What Kubernetes is asked about before a cluster is stored: all objects that have pods, one
    with the pods that Spark makes, and policies that hold rules of the owner."""
    policy = pool.cluster.network_policy
    limits = policy.egress is not None or policy.clients_from is not None
    asked = [child for child in children(pool) if child.pods_key]
    asked += [child for child in children(pool) if limits and child.resource == POLICIES]
    wanted = pool.cluster.spark
    if wanted is not None:
        body = spark.executors_trial(pool, _metadata(pool, f"{pool.spark_name}-exec"), wanted)
        asked.append(ChildObject(DEPLOYMENTS, body, "spec.spark.executors.podTemplate"))
    return tuple(asked)


def kinds(pool: Pool) -> tuple[Resource, ...]:
    """The kinds of objects that a pool may have or have had."""
    return WORKER_KINDS + SPARK_KINDS if pool.spark_role else WORKER_KINDS


def _spark(pool: Pool, wanted: SparkServer) -> list[tuple[Resource, dict[str, Any]]]:
    def metadata() -> dict[str, Any]:
        return {**_metadata(pool, pool.spark_name), "labels": pool.spark_labels}

    found = [
        (ACCOUNTS, spark.account(pool, metadata())),
        (BINDINGS, spark.role_binding(pool, metadata())),
        (SECRETS, spark.token(pool, metadata())),
        (CONFIG_MAPS, spark.files(pool, metadata(), wanted)),
        (SERVICES, spark.service(pool, metadata())),
        (DEPLOYMENTS, spark.deployment(pool, metadata(), wanted)),
    ]
    if pool.cluster.network_policy.enabled:
        found.append((POLICIES, spark.policy(pool, metadata())))
    return found


def _metadata(pool: Pool, name: str = "") -> dict[str, Any]:
    return {
        "name": name or pool.name,
        "namespace": pool.namespace,
        "labels": pool.labels,
        "annotations": {},
        "ownerReferences": [pool.owner],
    }


def _stamped(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"]["annotations"][APPLIED_ANNOTATION] = digest_of(body)
    return body


def _account(pool: Pool) -> dict[str, Any]:
    metadata = _metadata(pool, account_name(pool))
    metadata["annotations"].update(pool.cluster.service_account.annotations)
    return {"metadata": metadata, "automountServiceAccountToken": False}


def _account_secret(pool: Pool) -> dict[str, Any]:
    """What workers show to ZooKeeper; who creates it adds user and password."""
    return {"metadata": _metadata(pool, pool.account_secret), "type": ACCOUNT_TYPE}


def _service(pool: Pool) -> dict[str, Any]:
    return {
        "metadata": _metadata(pool),
        "spec": {
            "clusterIP": "None",
            "selector": pool.selector,
            "publishNotReadyAddresses": True,
            "ports": [
                {
                    "name": "transport",
                    "port": TRANSPORT_PORT,
                    "targetPort": "transport",
                    "protocol": "TCP",
                },
                {
                    "name": "metrics",
                    "port": METRICS_PORT,
                    "targetPort": "metrics",
                    "protocol": "TCP",
                },
            ],
        },
    }


def _http_service(pool: Pool, wanted: HttpRequests) -> dict[str, Any]:
    secure = wanted.tls_secret_name is not None
    name, port = ("https", 443) if secure else ("http", 80)
    served = {"name": name, "port": port, "targetPort": "http", "appProtocol": name}
    return _clients_service(pool, pool.http_name, wanted.service_annotations, served)


def _grpc_service(pool: Pool, wanted: GrpcRequests) -> dict[str, Any]:
    served = {"name": "grpc", "port": TRANSPORT_PORT, "targetPort": "transport",
              "appProtocol": "grpc"}  # fmt: skip
    return _clients_service(pool, pool.grpc_name, wanted.service_annotations, served)


def _clients_service(
    pool: Pool, name: str, annotations: Mapping[str, str], port: Mapping[str, Any]
) -> dict[str, Any]:
    """Any worker takes any request, so clients need no more than one that is ready."""
    metadata = _metadata(pool, name)
    metadata["annotations"].update(annotations)
    return {
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "selector": pool.selector,
            "ports": [{**port, "protocol": "TCP"}],
        },
    }


def _policy(pool: Pool) -> dict[str, Any]:
    workers = {"podSelector": {"matchLabels": pool.selector}}
    transport = {"port": TRANSPORT_PORT, "endPort": TRANSPORT_PORT_LAST, "protocol": "TCP"}
    spec = {
        **workers,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [workers], "ports": [transport]},
            {"ports": [{"port": METRICS_PORT, "protocol": "TCP"}]},
            *_for_clients(pool, transport),
        ],
    }
    connect = {"port": CONNECT_PORT, "protocol": "TCP"}
    to_spark = [] if pool.cluster.spark is None else [to(pool.spark_selector("server"), connect)]
    own = (to(pool.selector, transport), *to_spark, *to_zookeeper(pool))
    return {"metadata": _metadata(pool), "spec": limited(spec, pool, *own)}


def _for_clients(pool: Pool, transport: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rules for who sends requests: over HTTP all, unless they are listed."""
    listed = pool.cluster.network_policy.clients_from
    ports: list[Mapping[str, Any]] = []
    if pool.cluster.http is not None:
        ports.append({"port": HTTP_PORT, "protocol": "TCP"})
    if pool.cluster.grpc is not None:
        ports.append(transport)
    if listed is None:
        return [{"ports": ports}] if ports else []
    # An empty list lets nobody in, but an empty `from` of a policy everybody.
    return [{"from": [dict(each) for each in listed], "ports": ports}] if listed else []


def _budget(pool: Pool) -> dict[str, Any]:
    return {
        "metadata": _metadata(pool),
        "spec": {
            "maxUnavailable": pool.cluster.pod_disruption_budget.max_unavailable,
            "selector": {"matchLabels": pool.selector},
            # A worker that does not work anyway must not stop a node from being drained.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _stateful_set(pool: Pool) -> dict[str, Any]:
    return {
        "metadata": _metadata(pool),
        "spec": {
            "serviceName": pool.name,
            "replicas": pool.cluster.replicas,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "revisionHistoryLimit": REVISIONS_KEPT,
            "selector": {"matchLabels": pool.selector},
            "template": pod_template(pool),
        },
    }
