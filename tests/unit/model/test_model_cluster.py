"""A cluster is read whole, or refused with all that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from onyx.errors import ManifestError
from onyx.model.cluster import Cluster, CodeSource, DataVolume, EnvVar, TlsSource
from onyx.model.parsing.cluster import parse_cluster, parse_cluster_manifest
from onyx.model.parsing.text import kind_of

WHOLE = """
apiVersion: onyx.dev/v1beta1
kind: OnyxCluster
metadata: {name: fleet, namespace: team, uid: 1-2-3, labels: {a: b}}
spec:
  tenancyId: flights
  jobScheduler: greedy
  replicas: 3
  peersPerWorker: 8
  image: registry.example/onyx-worker:1.0@sha256:aa
  imagePullPolicy: IfNotPresent
  imagePullSecrets: [{name: registry}]
  modules: [flights, flights.tasks]
  code: {configMap: flights-code}
  zookeeper: {address: "zk-0.zk:2181,zk-1.zk:2181,[::1]:2181"}
  tls: {secretName: onyx-tls, zookeeper: true}
  data: {claimName: shared}
  settings: {ONYX_LEDGER_FRONTIER_INTERVAL_S: "0.5"}
  env:
    - {name: AWS_REGION, value: eu-west-1}
    - {name: AWS_SECRET_ACCESS_KEY, valueFrom: {secretKeyRef: {name: s3, key: secret}}}
  envFrom: [{secretRef: {name: s3}}]
  resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 2Gi, "example.com/gpu": 1}}
  podTemplate:
    metadata: {labels: {team: data}, annotations: {note: "any text: even this"}}
    spec: {nodeSelector: {disk: ssd}, containers: [{name: worker, stdin: true}]}
  podDisruptionBudget: {maxUnavailable: 25%}
  networkPolicy: {enabled: false}
  serviceAccount: {create: false, name: mine}
  terminationGracePeriodSeconds: 120
status: {replicas: 2}
"""


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxCluster",
        "metadata": {"name": "fleet"},
        "spec": spec,
    }


def test_every_key_is_read() -> None:
    cluster = parse_cluster_manifest(WHOLE)

    assert cluster.replicas == 3
    assert cluster.tls == TlsSource("onyx-tls", zookeeper=True)
    assert cluster.code == CodeSource("flights-code")
    assert cluster.data == DataVolume("shared", "/data")
    assert cluster.env[0] == EnvVar("AWS_REGION", "eu-west-1")
    assert cluster.env[1].value_from == {"secretKeyRef": {"name": "s3", "key": "secret"}}
    assert cluster.pod_template.metadata.labels == {"team": "data"}
    assert cluster.pod_disruption_budget.max_unavailable == "25%"
    assert cluster.tenancy_id == "flights"


def test_nothing_has_to_be_given() -> None:
    assert parse_cluster(manifest()) == Cluster("fleet")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replica": 2}, "spec.replica: is not a key of a cluster (did you mean replicas?)"),
        ({"grpc": {}}, "spec.grpc: is closed: only workers reach the workers' transport (say in "),
        ({"grpc": {}, "networkPolicy": {"enabled": False, "clientsFrom": []}},
         "spec.networkPolicy.clientsFrom: limits nothing while enabled is false"),
        ({"networkPolicy": {"clientsFrom": [{"podSelector": {}}]}},
         "spec.networkPolicy.clientsFrom: lets clients in, but workers take no requests"),
        ({"peersPerWorker": 2, "processesPerWorker": 3},
         "spec.processesPerWorker: is 3, and a process without a peer does nothing"),
        ({"env": [{"name": "ONYX_PROCESSES", "value": "2"}]},
         "spec.env[0]: ONYX_PROCESSES is set by the operator (use spec.processesPerWorker)"),
        ({"replicas": "2"}, 'spec.replicas: is "2", but must be an integer of workers'),
        ({"replicas": -1}, "spec.replicas: is the number -1"),
        ({"replicas": True}, "spec.replicas: is true"),
        ({"replicas": 1_001}, "from 0 to 1000"),
        ({"tenancyId": "a/b"}, "spec.tenancyId:"),
        ({"image": "a b"}, "spec.image:"),
        ({"imagePullPolicy": "always"}, "did you mean Always?"),
        ({"imagePullSecrets": ["registry"]}, "spec.imagePullSecrets[0]: is \"registry\""),
        ({"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, "[1]: a is given twice"),
        ({"modules": ["app:work"]}, "spec.modules[0]: "),
        ({"code": {}}, "spec.code.configMap: is missing"),
        ({"code": "files"}, "spec.code: is \"files\", but must be a mapping"),
        ({"zookeeper": {"address": "zk"}}, "such as zookeeper:2181"),
        ({"zookeeper": {"address": "zk:2181, b:1"}}, "spec.zookeeper.address:"),
        ({"data": {"claimName": "c", "mountPath": "data"}}, "an absolute path"),
        ({"data": {"claimName": "c", "mountPath": "/tmp/x"}}, "which the operator uses"),
        ({"data": {"claimName": "c", "mountPath": "/data/../etc"}}, "contains . or .."),
        ({"settings": {"ONYX_LEGDER_ACK_INTERVAL_S": "1"}}, "mean ONYX_LEDGER_ACK_INTERVAL_S?"),
        ({"settings": {"ONYX_LEDGER_ACK_INTERVAL_S": "soon"}}, "expected a number"),
        ({"settings": {"ONYX_LEDGER_ACK_INTERVAL_S": 1}}, "is the number 1, but must be text"),
        ({"settings": {"ONYX_STATE_URL": "/tmp/state"}}, "name a folder of the volume"),
        ({"settings": {"MINE": "1"}}, "a variable of your own goes under env"),
        ({"settings": {"ONYX_TENANCY_ID": "x"}}, "set by the operator (use spec.tenancyId)"),
        ({"env": [{"name": "ONYX_MODULES"}]}, "set by the operator (use spec.modules)"),
        ({"env": [{"name": "ONYX_TRANSPORT_PORT"}]}, "set by the operator (remove it)"),
        ({"env": [{"name": "A"}, {"name": "A"}]}, "spec.env[1]: A is given twice"),
        (
            {"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {}}}]},
            "spec.env[0].valueFrom: is given together with value",
        ),
        (
            {"env": [{"name": "ONYX_TELEMETRY_LOG_LEVEL"}],
             "settings": {"ONYX_TELEMETRY_LOG_LEVEL": "INFO"}},
            "is given under settings too",
        ),
        ({"envFrom": [{"prefix": "A"}]}, "spec.envFrom[0]: needs exactly one"),
        (
            {"envFrom": [{"secretRef": {"name": "s", "namespace": "other"}}]},
            "secretRef.namespace: is not a key of a secretRef (what it names is in the cluster's",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "keys": "k"}}}]},
            "spec.env[0].valueFrom.secretKeyRef.keys: is not a key of a secretKeyRef",
        ),
        ({"env": [{"name": "A", "valueFrom": {"secret": {}}}]}, "did you mean secretRef?"),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": "x"}}]}, "must be a mapping with the"),
        ({"tls": {"secretName": "other/onyx-tls"}}, "the name of a Kubernetes object"),
        ({"resources": {"requests": {"cpu": 0.5}}}, "a fraction is written in quotes"),
        ({"resources": {"requests": {"memory": "1 GB"}}}, "spec.resources.requests.memory"),
        ({"resources": {"claims": []}}, "spec.resources.claims: is not a key"),
        ({"sparkMemory": "2 GB"}, "spec.sparkMemory: is \"2 GB\", but must be an amount"),
        ({"sparkMemory": "0Mi", "spark": {}}, "spec.sparkMemory: is 0, with which workers run no"),
        ({"podTemplate": {"spce": {}}}, "did you mean spec?"),
        ({"podTemplate": {"metadata": {"labels": {"a": "b c"}}}}, "labels.a: "),
        ({"podTemplate": {"spec": {"containers": {}}}}, "spec.containers: must be a list"),
        ({"podTemplate": {"spec": {"containers": [{}]}}}, "our container is called worker"),
        ({"spark": {"podTemplate": {"spec": {"containers": [{}]}}}}, "container is called spark"),
        ({"spark": {"executors": {"podTemplate": {"spec": {"volumes": {}}}}}},
         "spec.spark.executors.podTemplate.spec.volumes: must be a list"),
        ({"podTemplate": {"spec": {"containers": [
            {"name": "worker", "env": [{"name": "ONYX_TENANCY_ID", "value": "x"}]}]}}},
         "containers[0].env[0]: ONYX_TENANCY_ID is set by the operator (use spec.tenancyId)"),
        ({"spark": {"podTemplate": {"spec": {"serviceAccountName": "x"}}}},
         "spec.spark.podTemplate.spec.serviceAccountName: is set by the operator"),
        (
            {"podTemplate": {"spec": {"serviceAccountName": "x"}}},
            "use spec.serviceAccount.name",
        ),
        ({"podDisruptionBudget": {"maxUnavailable": "half"}}, 'a share such as "25%"'),
        ({"terminationGracePeriodSeconds": 1e3}, "spec.terminationGracePeriodSeconds"),
        ({"zookeeper": None}, "spec.zookeeper: has no value (null)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_cluster(manifest(**spec))
    assert len(caught.value.problems) == 1, caught.value
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["Fleet", "1st", "a" * 46, "a.b", "a-", "", 3])
def test_a_name_that_pods_cannot_have_is_refused(name: Any) -> None:
    with pytest.raises(ManifestError, match="is not a name for a cluster"):
        parse_cluster({**manifest(), "metadata": {"name": name}})


def test_all_problems_are_told_at_once_with_their_lines() -> None:
    text = WHOLE.replace("replicas: 3", "replicas: 3.5").replace("secretName:", "secret:")
    with pytest.raises(ManifestError) as caught:
        parse_cluster_manifest(text, "oc.yaml")
    assert [(each.path, each.where) for each in caught.value.problems] == [
        ("spec.replicas", "oc.yaml:8"),
        ("spec.tls.secret", "oc.yaml:16"),
        ("spec.tls.secretName", "oc.yaml:16"),
    ]


@pytest.mark.parametrize("text", ["", "[]", "kind: OnyxJob", "spec: {}"])
def test_what_is_no_cluster_at_all_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ManifestError):
        parse_cluster_manifest(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WHOLE, "OnyxCluster"),
        ("kind: OnyxCluster\nspec: 3", "OnyxCluster"),
        ('{"kind": "OnyxCluster"}', "OnyxCluster"),
        ("kind: OnyxJob", "OnyxJob"),
        ("[OnyxCluster]", None),
        ("", None),
        (": {", None),
    ],
)
def test_the_kind_of_a_text_is_known_even_if_the_text_is_wrong(
    text: str, expected: str | None
) -> None:
    assert kind_of(text) == expected
