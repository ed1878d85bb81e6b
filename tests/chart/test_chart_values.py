"""Values: each is documented, checked and has an effect; nonsense is refused in clear words."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import helm_python
import pytest
import yaml
from charts.values_page import documented
from tests.support.generated.chart import CHART, SETS, Object, render, value_set

TEXT = (CHART / "values.yaml").read_text()
VALUES: Object = yaml.safe_load(TEXT)
SCHEMA: Object = json.loads((CHART / "values.schema.json").read_text())
EVERYTHING: Object = {
    "metrics": {"podMonitor": {"create": True}, "prometheusRule": {"create": True}},
    "data": {"create": True},
    "spark": {"enabled": True},
    "zookeeper": {"podDisruptionBudget": {"enabled": True}},
}
GIVEN_SECRETS: Object = {"webhook": {"existingSecret": "hook", "caBundle": "UEVN"}}
ROUTE: Object = {"create": True, "parentRefs": [{"name": "public"}]}
BASES = [
    *map(value_set, SETS),
    EVERYTHING,
    GIVEN_SECRETS,
    {"operator": {"serviceAccount": {"name": "mine"}}},
    {"zookeeper": {"persistence": {"enabled": False}}},
    {"cluster": {"http": {"enabled": True, "route": {"parentRefs": [{"name": "public"}]}}}},
    {"cluster": {"grpc": {"enabled": True}}},
    {
        "console": {
            "enabled": True,
            "hostnames": ["a.example"],
            "route": {"parentRefs": [{"name": "public"}]},
        }
    },
    {"backup": {"to": "backups"}},
]
"""A value that has an effect has it on top of one of these."""


@cache
def bases_rendered() -> list[dict[str, str]]:
    return [render(base) for base in BASES]


OTHERS: Object = {
    "zookeeper.address": "elsewhere:2181",
    "s3.endpoint": "http://minio:9000",
    "image.digest": "sha256:" + 64 * "a",
    "spark.image.digest": "sha256:" + 64 * "a",
    "zookeeper.image.digest": "sha256:" + 64 * "a",
    "operator.image.digest": "sha256:" + 64 * "a",
    "tls.certManager.duration": "48h",
    "tls.certManager.renewBefore": "8h",
    "metrics.podMonitor.interval": "5s",
    "zookeeper.persistence.size": "3Gi",
    "data.size": "3Gi",
    "data.mountPath": "/elsewhere",
    "data.accessModes": ["ReadWriteOnce"],
    "zookeeper.persistence.accessModes": ["ReadWriteOncePod"],
    "zookeeper.replicas": 3,
    "webhook.caBundle": "T1RIRVI=",
    "cluster.peersPerWorker": 8,
    "cluster.processesPerWorker": 2,
    "cluster.networkPolicy.egress": [{"ports": [{"port": 443}]}],
    "tls.dnsNames": ["more-worker.onyx.svc"],
    "cluster.podTemplate": {"spec": {"hostname": "other"}},
    "cluster.spark.podTemplate": {"spec": {"hostname": "other"}},
    "cluster.spark.executors.podTemplate": {"spec": {"hostname": "other"}},
    "imagePullSecrets": [{"name": "other"}],
    "cluster.http.route.hostnames": ["other.example"],
    "console.hostnames": ["other.example"],
    "console.route.hostnames": ["other.example"],
    "console.settings": {"ONYX_HISTORY_ARCHIVE": "s3://log/archive"},
    "console.resources": {"limits": {"memory": "1Gi"}},
    "backup.schedule": "0 3 * * *",
    "backup.settings": {"ONYX_TELEMETRY_LOG_LEVEL": "DEBUG"},
    "backup.resources": {"limits": {"memory": "2Gi"}},
    "cluster.quotas": {"priority": 5},
    "cluster.settings": {"ONYX_TAGS": "gpu"},
    "operator.settings": {"ONYX_OPERATOR_JOBS_RETRY_MIN_S": "2"},
    "zookeeper.settings": {"ONYX_TELEMETRY_LOG_LEVEL": "DEBUG"},
    "watchNamespaces": ["onyx", "other"],
    "watchNamespaceLabels": {"onyx": "on"},
    "cluster.modules": ["other"],
    "cluster.code.files": {"other.py": "x = 1\n"},
    "operator.resources": {"limits": {"memory": "1Gi"}},
    "cluster.sparkMemory": "3Gi",
    "cluster.spark.memory": "3g",
    "cluster.spark.resources": {"limits": {"memory": "5Gi"}},
    "cluster.spark.executors.memory": "3g",
    "cluster.spark.conf": {"spark.sql.shuffle.partitions": "64"},
    "cluster.resources": {"limits": {"memory": "1Gi"}},
    "zookeeper.resources": {"limits": {"memory": "1Gi"}},
}
"""Another value, where one cannot be made up from the present one."""


def leaves(values: Any = VALUES, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that stands in values.yaml; one that is documented is not looked into."""
    for key, each in values.items():
        here = f"{path}.{key}" if path else key
        if isinstance(each, dict) and each and here not in DOCUMENTED:
            yield from leaves(each, here)
        else:
            yield here, each


DOCUMENTED = documented(TEXT)
LEAVES = dict(leaves())


def changed(path: str, present: Any) -> Any:
    if path in OTHERS:
        return OTHERS[path]
    if path.endswith("create") and present == "auto":
        return True
    for choice in schema_at(path).get("enum", ()):
        if choice != present:
            return choice
    if isinstance(present, bool):
        return not present
    if isinstance(present, int):
        return present + 1
    if isinstance(present, str):
        return "other"
    return {"name": "other"} if isinstance(present, dict) else [{"name": "other"}]


def schema_at(path: str) -> Object:
    found = SCHEMA
    for key in path.split("."):
        while "$ref" in found:
            found = SCHEMA["$defs"][found["$ref"].rpartition("/")[2]]
        found = found["properties"][key]
    while "$ref" in found:
        found = SCHEMA["$defs"][found["$ref"].rpartition("/")[2]]
    return found


def with_value(base: Object, path: str, value: Any) -> Object:
    result = copy.deepcopy(base)
    *parents, last = path.split(".")
    inner = result
    for key in parents:
        inner = inner.setdefault(key, {})
    inner[last] = value
    return result


def rendered(values: Object) -> dict[str, str] | None:
    """None when these values do not go together."""
    try:
        return render(values)
    except helm_python.HelmError:
        return None


@pytest.mark.parametrize("path", LEAVES)
def test_a_value_is_documented_and_in_the_schema(path: str) -> None:
    assert path in DOCUMENTED
    assert schema_at(path)


@pytest.mark.short(50)
@pytest.mark.parametrize("path", LEAVES)
def test_a_value_has_an_effect(path: str) -> None:
    for base, present in zip(BASES, bases_rendered(), strict=True):
        other = rendered(with_value(base, path, changed(path, LEAVES[path])))
        if other is not None and present != other:
            return
    pytest.fail(f"{path} changes nothing: drop it, or add a base on which it does")


def test_nothing_is_in_the_schema_that_is_no_value() -> None:
    def paths(schema: Object, path: str = "") -> Iterator[str]:
        for key, each in schema.get("properties", {}).items():
            here = f"{path}.{key}" if path else key
            yield here
            if here not in DOCUMENTED:
                while "$ref" in each:
                    each = SCHEMA["$defs"][each["$ref"].rpartition("/")[2]]
                yield from paths(each, here)

    known = set(LEAVES) | {
        ".".join(path.split(".")[:depth]) for path in LEAVES for depth in range(1, 5)
    }
    assert set(paths(SCHEMA)) - known == {"global"}, "global is Helm's own"


REFUSED = [
    ({"replicas": 3}, "additional properties 'replicas' not allowed"),
    ({"zookeeper": {"replicas": 2}}, "/zookeeper/replicas': value must be one of 1, 3"),
    ({"zookeeper": {"address": "zookeeper"}}, "/zookeeper/address': 'zookeeper' does not match"),
    ({"cluster": {"replicas": -1}}, "/cluster/replicas': minimum: got -1, want 0"),
    ({"cluster": {"replicas": "two"}}, "/cluster/replicas': got string, want null or integer"),
    ({"cluster": {"peersPerWorker": 0}}, "/cluster/peersPerWorker': minimum: got 0, want 1"),
    ({"cluster": {"name": "Onyx"}}, "/cluster/name': 'Onyx' does not match pattern"),
    ({"cluster": {"jobScheduler": "fair"}}, "value must be one of 'balanced', 'greedy'"),
    ({"cluster": {"modules": "flights"}}, "/cluster/modules': got string, want array"),
    (
        {"cluster": {"settings": {"PATH": "/"}}},
        "/cluster/settings': additional properties 'PATH' not allowed",
    ),
    ({"cluster": {"resources": {"limit": {}}}}, "additional properties 'limit' not allowed"),
    ({"cluster": {"resources": {"limits": {"memory": "2 GB"}}}}, "'2 GB' does not match pattern"),
    ({"cluster": {"sparkMemory": "2 GB"}}, "/cluster/sparkMemory': '2 GB' does not match pattern"),
    ({"image": {"digest": "latest"}}, "/image/digest': 'latest' does not match pattern"),
    ({"image": {"repository": ""}}, "/image/repository': minLength: got 0, want 1"),
    ({"image": {"pullPolicy": "always"}}, "/image/pullPolicy': value must be one of 'Always'"),
    ({"webhook": {"failurePolicy": "fail"}}, "value must be one of 'Fail', 'Ignore'"),
    ({"webhook": {"timeoutSeconds": 60}}, "/webhook/timeoutSeconds': maximum: got 60, want 30"),
    ({"metrics": {"podMonitor": {"create": "yes"}}}, "value must be one of 'auto', true, false"),
    ({"s3": {"endpoint": "minio:9000"}}, "/s3/endpoint': 'minio:9000' does not match pattern"),
    ({"data": {"mountPath": "data"}}, "/data/mountPath': 'data' does not match pattern"),
    ({"tls": {"certManager": {"duration": "90d"}}}, "'90d' does not match pattern"),
    ({"watchNamespaces": ["*"]}, "/watchNamespaces/0': '*' does not match pattern"),
    ({"operator": None, "nameOverride": 1}, "/nameOverride': got number, want string"),
    ({"webhook": {"existingSecret": "x"}}, "webhook.existingSecret needs webhook.caBundle"),
    (
        {"webhook": {"existingSecret": "x", "caBundle": "eA==", "certManager": {"enabled": True}}},
        "webhook: give existingSecret or turn certManager on, not both",
    ),
    (
        {"tls": {"existingSecret": "x", "certManager": {"enabled": True}}},
        "tls: give existingSecret or turn certManager on, not both",
    ),
    ({"tls": {"existingSecret": "x", "enabled": False}}, "tls: a certificate is given, but"),
    (
        {"webhook": {"certManager": {"enabled": True}, "enabled": False}},
        "webhook: a certificate is",
    ),
    (
        {"webhook": {"clientCaConfigMap": "x", "enabled": False}},
        "webhook: clientCaConfigMap is given, but",
    ),
    ({"zookeeper": {"authSecret": "x", "account": False}}, "zookeeper: authSecret is given, but"),
    ({"data": {"existingClaim": "x", "create": True}}, "data: give existingClaim or set create"),
    (
        {"cluster": {"code": {"existingConfigMap": "x", "files": {"a.py": ""}}}},
        "cluster.code: give existingConfigMap or files, not both",
    ),
    (
        {"operator": {"serviceAccount": {"create": False}}},
        "operator.serviceAccount.name is needed when create is false",
    ),
    (
        {"console": {"enabled": True}, "cluster": {"create": False}},
        "console.enabled needs cluster.create=true",
    ),
    ({"console": {"route": {"create": True}}}, "console.route.create needs console.enabled=true"),
    (
        {"console": {"enabled": True, "route": {"create": True}}},
        "console.route.parentRefs is needed",
    ),
    (
        {"console": {"enabled": True, "route": {**ROUTE, "hostnames": ["*.example"]}}},
        "console.route.hostnames or console.hostnames needs the name",
    ),
    (
        {"console": {"enabled": True, "from": [{}]}, "networkPolicy": {"enabled": False}},
        "console.from needs networkPolicy.enabled=true",
    ),
    ({"watchNamespaces": ["other"]}, 'watchNamespaces must contain "onyx"'),
    ({"clusterWide": True, "watchNamespaceLabels": {"a": "b"}}, "watchNamespaceLabels or set"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[json.dumps(v) for v, _ in REFUSED])
def test_nonsense_is_refused(values: Object, message: str) -> None:
    with pytest.raises(helm_python.HelmError) as refused:
        render(values)

    assert message in str(refused.value)
