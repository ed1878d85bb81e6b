"""The objects of a worker pool: pure builders, from a pool to what the API server is to have.

A StatefulSet, because its pods keep their names and are replaced one at a time; all of them start
and stop at once (`Parallel`), since no worker is master of another. The headless Service is for
people and scrapers: workers find each other through the log.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

from onyx.model.canonical import canonical_json
from onyx_operator.clusters.environment import METRICS_PORT, TRANSPORT_PORT
from onyx_operator.clusters.pods import account_name, pod_template
from onyx_operator.clusters.pool import Pool
from onyx_operator.kube import Resource

STATEFUL_SETS = Resource("apps/v1", "StatefulSet", "statefulsets")
SERVICES = Resource("v1", "Service", "services")
ACCOUNTS = Resource("v1", "ServiceAccount", "serviceaccounts")
BUDGETS = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
POLICIES = Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
KINDS = (ACCOUNTS, SERVICES, POLICIES, BUDGETS, STATEFUL_SETS)
"""What a pool is made of, in the order in which it is made."""

APPLIED_ANNOTATION = "onyx.dev/applied"
"""Digest of what was applied: it differs when a field is no longer applied that once was."""
REVISIONS_KEPT = 5


@dataclass(frozen=True, slots=True)
class Child:
    """One object of a pool, as it is to be."""

    resource: Resource
    body: dict[str, Any]

    @property
    def name(self) -> str:
        """Its name; unique in its kind."""
        return str(self.body["metadata"]["name"])


def children(pool: Pool) -> tuple[Child, ...]:
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
    made = [Child(resource, _stamped(body)) for resource, body in found]
    return tuple(sorted(made, key=lambda child: KINDS.index(child.resource)))


def _metadata(pool: Pool, name: str = "") -> dict[str, Any]:
    return {
        "name": name or pool.name,
        "namespace": pool.namespace,
        "labels": pool.labels,
        "annotations": {},
        "ownerReferences": [pool.owner],
    }


def _stamped(body: dict[str, Any]) -> dict[str, Any]:
    digest = hashlib.sha256(canonical_json(body)).digest()
    shown = base64.b32encode(digest).decode().lower()[:16]
    body["metadata"]["annotations"][APPLIED_ANNOTATION] = shown
    return body


def _account(pool: Pool) -> dict[str, Any]:
    metadata = _metadata(pool, account_name(pool))
    metadata["annotations"].update(pool.cluster.service_account.annotations)
    return {"metadata": metadata, "automountServiceAccountToken": False}


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


def _policy(pool: Pool) -> dict[str, Any]:
    workers = {"podSelector": {"matchLabels": pool.selector}}
    return {
        "metadata": _metadata(pool),
        "spec": {
            **workers,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [workers], "ports": [{"port": TRANSPORT_PORT, "protocol": "TCP"}]},
                {"ports": [{"port": METRICS_PORT, "protocol": "TCP"}]},
            ],
        },
    }


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
