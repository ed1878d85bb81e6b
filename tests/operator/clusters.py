"""Clusters and pools that several tests are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onyx_operator.clusters.pool import Pool
from onyx_operator.clusters.spec import ClusterRefusal, read_spec
from onyx_operator.settings import ClusterSettings, OperatorSettings

UID = "6f8b3cf0-0000-4000-8000-0000000000c1"
OPERATOR = OperatorSettings(
    zookeeper_addresses=("zk:2181", "zk-0:2181", "zk-1:2181"),
    tenancies=("team/flights",),
    clusters=ClusterSettings(
        spark_role="Role/onyx-spark", pod_rights=("team/containers", "serviceAccountName")
    ),
)
SIDECAR: Mapping[str, Any] = {
    "name": "logs",
    "image": "logs:1",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
SMALL: Mapping[str, Any] = {"image": "onyx-worker:1.0", "zookeeper": {"address": "zk:2181"}}
WHOLE: Mapping[str, Any] = {
    "tenancyId": "flights",
    "jobScheduler": "greedy",
    "quotas": {"peersPerJob": 12, "priority": 10},
    "replicas": 3,
    "peersPerWorker": 8,
    "processesPerWorker": 2,
    "image": "registry.example/onyx-worker:1.0",
    "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": [{"name": "registry"}],
    "modules": ["flights", "flights.tasks"],
    "code": {"configMap": "flights-code"},
    "zookeeper": {"address": "zk-0:2181,zk-1:2181", "authSecret": "zookeeper"},
    "tls": {"secretName": "onyx-tls", "zookeeper": True},
    "http": {"tlsSecretName": "http-tls", "serviceAnnotations": {"note": "front"}},
    "grpc": {"serviceAnnotations": {"note": "behind"}},
    "networkPolicy": {"clientsFrom": [{"namespaceSelector": {"matchLabels": {"team": "shop"}}}]},
    "data": {"claimName": "shared"},
    "settings": {"ONYX_LEDGER_FRONTIER_INTERVAL_S": "0.5", "ONYX_LEAVE_TIMEOUT_S": "30"},
    "env": [
        {"name": "AWS_REGION", "value": "eu-west-1"},
        {"name": "AWS_SECRET_ACCESS_KEY",
         "valueFrom": {"secretKeyRef": {"name": "s3", "key": "secret"}}},
        {"name": "ONYX_TELEMETRY_LOG_FORMAT", "value": "text"},
    ],
    "envFrom": [{"secretRef": {"name": "s3"}, "prefix": "S3_"}],
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    "podTemplate": {
        "metadata": {"labels": {"team": "data"}, "annotations": {"note": "seen"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "topologySpreadConstraints": [
                {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone",
                 "whenUnsatisfiable": "DoNotSchedule"},
            ],
            "containers": [
                {"name": "worker", "volumeMounts": [{"name": "extra", "mountPath": "/extra"}]},
                SIDECAR,
            ],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
                        {"name": "extra", "emptyDir": {}}],
        },
    },
    "podDisruptionBudget": {"maxUnavailable": "25%"},
    "serviceAccount": {"name": "flights", "annotations": {"cloud.example/role": "reader"}},
    "terminationGracePeriodSeconds": 120,
}  # fmt: skip
SPARK: Mapping[str, Any] = {
    **SMALL,
    "code": {"configMap": "flights-code"},
    "data": {"claimName": "shared"},
    "spark": {
        "memory": "2g",
        "resources": {"requests": {"memory": "3Gi"}},
        "executors": {"instances": 3, "memory": "4g"},
        "conf": {"spark.sql.shuffle.partitions": "64"},
    },
}
CODE: Mapping[str, Any] = {
    "metadata": {"name": "flights-code"},
    "data": {"flights.tasks.py": "def parse(s): ...", "app.py": "", "a-b.py": "", "data.csv": "1"},
}


def cluster(
    spec: Mapping[str, Any] = SMALL, name: str = "fleet", **metadata: Any
) -> dict[str, Any]:
    """An OnyxCluster as the API server has it."""
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxCluster",
        "metadata": {"name": name, "namespace": "team", "uid": UID, "generation": 1, **metadata},
        "spec": dict(spec),
    }


def pool(
    spec: Mapping[str, Any] = SMALL, code: Mapping[str, Any] | None = None, name: str = "fleet"
) -> Pool:
    """The pool of a cluster that can be made."""
    found = read_spec(cluster(spec, name), code, OPERATOR)
    assert not isinstance(found, ClusterRefusal), found
    return found
