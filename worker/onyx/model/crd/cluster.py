"""The custom resource definition of OnyxCluster, derived from the fields of `Cluster`."""

from __future__ import annotations

from typing import Any

from onyx.model.cluster import CLUSTER
from onyx.model.crd.parts import (
    column,
    conditions,
    integer,
    object_of,
    resource,
    root,
    text,
    validations,
)
from onyx.model.keys.kinds import Schema
from onyx.model.keys.section import SectionEntry
from onyx.model.manifest import API_VERSION, CLUSTER_KIND
from onyx.model.names import CLUSTER_NAME

_SPEC_RULES = (
    (
        "(has(self.tenancyId) ? self.tenancyId : '') =="
        " (has(oldSelf.tenancyId) ? oldSelf.tenancyId : '')",
        "tenancyId cannot be changed: create another cluster",
    ),
    (
        "self.jobScheduler == oldSelf.jobScheduler",
        "jobScheduler cannot be changed: create another cluster",
    ),
)
_NAME_RULE = (
    f"self.metadata.name.matches('^{CLUSTER_NAME}$')",
    "the name of a cluster has lower case letters, digits and -, at most 45, first a letter",
)


def definition() -> dict[str, Any]:
    """The whole resource, ready to be written as YAML."""
    spec = {**SectionEntry(CLUSTER).schema(), "x-kubernetes-validations": validations(_SPEC_RULES)}
    schema = root("A pool of workers of Onyx.", spec, _status(), _NAME_RULE)
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": _columns(),
        "schema": {"openAPIV3Schema": schema},
    }
    return resource(CLUSTER_KIND, "oc", API_VERSION, version)


def _status() -> Schema:
    return object_of(
        "State of the cluster; written by the operator.",
        observedGeneration=integer("Generation of the spec that this describes."),
        replicas=integer("Worker pods that exist."),
        readyReplicas=integer("Workers that have joined the cluster."),
        updatedReplicas=integer("Workers that conform to the current spec."),
        selector=text("Selector of the pods, for autoscalers."),
        peers=integer("Virtual peers of the ready workers."),
        tenancyId=text("Tenancy of the workers."),
        zookeeperAddress=text("Address of the ZooKeeper that has the log of the workers."),
        tenancyHolder=text(
            "Namespace and name of the OnyxCluster that has the log which this one asks for."
        ),
        conditions=conditions(
            "Reconciled, Ready, SparkReady, Stable, ZooKeeperReachable or HasRoom"
        ),
    )


def _columns() -> list[dict[str, Any]]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    return [
        column("Ready", "string", f"{ready}.status"),
        column("Desired", "integer", ".spec.replicas"),
        column("Workers", "integer", ".status.readyReplicas"),
        column("Peers", "integer", ".status.peers"),
        column("Reason", "string", f"{ready}.reason"),
        column("Age", "date", ".metadata.creationTimestamp"),
        column("Tenancy", "string", ".status.tenancyId", priority=1),
        column("Message", "string", f"{ready}.message", priority=1),
    ]
