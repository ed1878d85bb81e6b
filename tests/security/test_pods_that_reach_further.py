"""Attacked: nodes, other identities and programs of others, by the pods of an OnyxCluster, whose
author need not have the right to make pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.operator.clusters import SMALL, SPARK, cluster
from tests.operator.fake_api.server import FakeApi
from tests.operator.harness import Logs, Operator, settings
from tests.operator.harness import cluster as declared
from tests.operator.test_clusters_operator import says

from onyx_operator.clusters.check import check
from onyx_operator.clusters.pod_rights import PROBLEMS_MAX
from onyx_operator.clusters.pool import Pool
from onyx_operator.clusters.spec import ClusterRefusal, read_spec
from onyx_operator.settings import ClusterSettings, OperatorSettings

OF_POD: list[tuple[dict[str, Any], str, str]] = [
    ({"hostNetwork": True}, "hostNetwork", "hostNetwork"),
    ({"hostPID": True}, "hostPID", "hostPID"),
    ({"hostIPC": True}, "hostIPC", "hostIPC"),
    ({"nodeName": "control-plane"}, "nodeName", "nodeName"),
    ({"serviceAccount": "admin"}, "serviceAccount", "serviceAccountName"),
    ({"serviceAccountName": None}, "serviceAccountName", "serviceAccountName"),
    ({"automountServiceAccountToken": True}, "automountServiceAccountToken", ""),
    ({"automountServiceAccountToken": None}, "automountServiceAccountToken", ""),
    ({"runtimeClassName": "host"}, "runtimeClassName", "runtimeClassName"),
    ({"priorityClassName": "system-node-critical"}, "priorityClassName", "priorityClassName"),
    ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims", "resourceClaims"),
    ({"aFieldOfTomorrow": 1}, "aFieldOfTomorrow", "aFieldOfTomorrow"),
    ({"ephemeralContainers": [{"name": "x"}]}, "ephemeralContainers", "ephemeralContainers"),
    ({"securityContext": None}, "securityContext.runAsNonRoot", "runAsNonRoot"),
    ({"securityContext": {"runAsNonRoot": False}}, "securityContext.runAsNonRoot", "runAsNonRoot"),
    ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser", "runAsUser"),
    ({"securityContext": {"seccompProfile": None}}, "securityContext.seccompProfile", ""),
    (
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        "securityContext.seccompProfile",
        "seccompProfile",
    ),
    ({"securityContext": {"sysctls": [{"name": "a"}]}}, "securityContext.sysctls", "sysctls"),
    ({"securityContext": {"seLinuxOptions": {"type": "t"}}}, "securityContext.seLinuxOptions", ""),
    ({"securityContext": {"windowsOptions": {}}}, "securityContext.windowsOptions", ""),
    (
        {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
        "securityContext.appArmorProfile",
        "appArmorProfile",
    ),
    ({"containers": [{"name": "evil", "image": "evil"}]}, "containers[evil]", "containers"),
    ({"initContainers": [{"name": "a", "image": "a"}]}, "initContainers[a]", "initContainers"),
    ({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}, "volumes[a].hostPath", "hostPath"),
    ({"volumes": [{"name": "a", "nfs": {"server": "s"}}]}, "volumes[a].nfs", "nfs"),
    ({"volumes": [{"name": "a", "csi": {"driver": "d"}}]}, "volumes[a].csi", "csi"),
    (
        {"volumes": [{"name": "tmp", "emptyDir": None, "hostPath": {"path": "/"}}]},
        "volumes[tmp].hostPath",
        "hostPath",
    ),
    (
        {
            "volumes": [
                {
                    "name": "a",
                    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
                }
            ]
        },
        "volumes[a].projected.sources[0].serviceAccountToken",
        "serviceAccountToken",
    ),
]
OF_CONTAINER: list[tuple[dict[str, Any], str, str]] = [
    ({"securityContext": {"privileged": True}}, "securityContext.privileged", "privileged"),
    ({"securityContext": None}, "securityContext.capabilities", "capabilities"),
    ({"securityContext": {"capabilities": None}}, "securityContext.capabilities", "capabilities"),
    ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, "securityContext.capabilities",
     "capabilities"),
    ({"securityContext": {"allowPrivilegeEscalation": True}},
     "securityContext.allowPrivilegeEscalation", "allowPrivilegeEscalation"),
    ({"securityContext": {"procMount": "Unmasked"}}, "securityContext.procMount", "procMount"),
    ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser", "runAsUser"),
    ({"securityContext": {"runAsNonRoot": False}}, "securityContext.runAsNonRoot", "runAsNonRoot"),
    ({"volumeDevices": [{"devicePath": "/dev/x", "name": "d"}]}, "volumeDevices", "volumeDevices"),
    ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "ports[0].hostPort", "hostPort"),
    ({"livenessProbe": {"tcpSocket": {"host": "10.0.0.1"}}},
     "livenessProbe.tcpSocket.host", "host"),
    ({"lifecycle": {"preStop": {"httpGet": {"host": "169.254.169.254"}}}},
     "lifecycle.preStop.httpGet.host", "host"),
    ({"aFieldOfTomorrow": 1}, "aFieldOfTomorrow", "aFieldOfTomorrow"),
]  # fmt: skip
HARMLESS: list[dict[str, Any]] = [
    {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "affinity": {}},
    {"priorityClassName": "low", "schedulerName": "other", "hostNetwork": False},
    {"securityContext": {"runAsUser": 1001, "fsGroup": 1001, "supplementalGroups": [5]}},
    {"volumes": [{"name": "a", "secret": {"secretName": "mine"}}, {"name": "b", "emptyDir": {}}]},
    {"dnsConfig": {"nameservers": ["10.0.0.10"]}, "hostAliases": [{"ip": "10.0.0.1"}]},
]
PLACES = ("spec.podTemplate", "spec.spark.podTemplate", "spec.spark.executors.podTemplate")
"""Of each template the same is asked."""


def settings_of(*rights: str) -> OperatorSettings:
    clusters = ClusterSettings(spark_role="Role/onyx-spark", pod_rights=rights)
    return OperatorSettings(zookeeper_addresses=("zk:2181",), clusters=clusters)


def asked(place: str, template: dict[str, Any], *rights: str) -> Pool | ClusterRefusal:
    spark = dict(SPARK["spark"])
    spec: dict[str, Any] = {**SPARK, "spark": spec_of(spark, place, template)}
    if place == PLACES[0]:
        spec["podTemplate"] = template
    code = {"metadata": {"name": "flights-code"}}
    return read_spec(cluster(spec), code, settings_of(*rights))


def spec_of(spark: dict[str, Any], place: str, template: dict[str, Any]) -> dict[str, Any]:
    if place == PLACES[1]:
        return {**spark, "podTemplate": template}
    if place == PLACES[2]:
        return {**spark, "executors": {**spark["executors"], "podTemplate": template}}
    return spark


def of_container(place: str, fields: dict[str, Any]) -> dict[str, Any]:
    name = "worker" if place == PLACES[0] else "spark"
    return {"spec": {"containers": [{"name": name, **fields}]}}


def refused(found: Pool | ClusterRefusal, path: str, right: str) -> None:
    """It is refused by key, with the setting; whoever allows that right is asked no more."""
    assert isinstance(found, ClusterRefusal)
    assert found.reason == "PodsNotAllowed"
    problem = next(each for each in found.problems if each.path == path)
    assert f"the right {right}" in problem.message
    assert "ONYX_OPERATOR_CLUSTERS_POD_RIGHTS" in problem.hint
    assert str(problem) in found.message


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("fields", "path", "right"), OF_POD, ids=[p for _, p, _ in OF_POD])
def test_a_template_lends_no_right_of_a_pod(
    place: str, fields: dict[str, Any], path: str, right: str
) -> None:
    if place == PLACES[1] and fields == {"automountServiceAccountToken": True}:
        return  # the server makes pods: it has a token
    found = asked(place, {"spec": fields})
    refused(found, f"{place}.spec.{path}", right or path.rpartition(".")[2])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("fields", "path", "right"), OF_CONTAINER, ids=[p for _, p, _ in OF_CONTAINER]
)
def test_a_template_lends_no_right_of_a_container(
    place: str, fields: dict[str, Any], path: str, right: str
) -> None:
    template = of_container(place, fields)
    (container,) = template["spec"]["containers"]
    where = f"{place}.spec.containers[{container['name']}]"
    found = asked(place, template)
    assert isinstance(found, ClusterRefusal)
    assert any(f"the right {right}" in each.message for each in found.problems)
    assert all(each.path.startswith(where) for each in found.problems)
    if "ports" not in path:  # a port that we do not have comes after ours
        refused(found, f"{where}.{path}", right)


def test_another_container_is_restricted_even_where_it_is_allowed() -> None:
    other = {"name": "other", "image": "other", "securityContext": {"privileged": True}}

    found = asked(PLACES[0], {"spec": {"containers": [other]}}, "containers")

    refused(found, f"{PLACES[0]}.spec.containers[other].securityContext.privileged", "privileged")


def test_thousands_of_fields_are_some_problems_of_a_known_number() -> None:
    fields = {f"field{number}": 1 for number in range(10_000)}

    found = asked(PLACES[0], {"spec": fields})

    assert isinstance(found, ClusterRefusal)
    assert len(found.problems) == PROBLEMS_MAX


def test_an_annotation_takes_no_profile_away() -> None:
    name = "container.apparmor.security.beta.kubernetes.io/worker"

    found = asked(PLACES[0], {"metadata": {"annotations": {name: "unconfined"}}})

    refused(found, f"{PLACES[0]}.metadata.annotations.{name}", "appArmorProfile")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fields", HARMLESS)
def test_what_is_harmless_needs_nobodys_leave(place: str, fields: dict[str, Any]) -> None:
    assert isinstance(asked(place, {"spec": fields}), Pool)


@pytest.mark.parametrize("right", ["hostPath", "team/hostPath"])
def test_a_right_that_is_allowed_is_had_in_its_namespace(right: str) -> None:
    template = {"spec": {"volumes": [{"name": "a", "hostPath": {"path": "/data"}}]}}

    assert isinstance(asked(PLACES[0], template, right), Pool)
    assert isinstance(asked(PLACES[0], template, "other/hostPath", "hostNetwork"), ClusterRefusal)


def test_neither_a_key_of_the_cluster_nor_a_setting_of_spark_goes_around_it() -> None:
    account = {**SMALL, "serviceAccount": {"create": False, "name": "admin"}}
    found = read_spec(cluster(account), None, settings_of())
    refused(found, "spec.serviceAccount.name", "serviceAccountName")
    assert isinstance(read_spec(cluster(account), None, settings_of("serviceAccountName")), Pool)

    name = "spark.kubernetes.executor.volumes.hostPath.root.mount.path"
    spark = {**SPARK, "spark": {**SPARK["spark"], "conf": {name: "/root"}}}
    found = read_spec(cluster(spark), {"metadata": {"name": "code"}}, settings_of())
    refused(found, f"spec.spark.conf.{name}", "hostPath")


def test_the_account_of_somebody_else_gets_no_workers(api: FakeApi, logs: Logs) -> None:
    """One that the operator would make, under a name that is taken."""
    admin = {"name": "admin", "namespace": "default"}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": admin})
    with Operator(api, logs.connect, settings()):
        api.create(declared(serviceAccount={"name": "admin"}))
        api.wait_for("onyxclusters", "onyx", says("Reconciled", "False", "NameTaken"))
        api.wait_for("services", "onyx-worker", bool)

    assert api.get("statefulsets", "onyx-worker") is None


def test_nothing_is_made_and_the_condition_says_why(api: FakeApi, logs: Logs) -> None:
    with Operator(api, logs.connect, settings()):
        api.create(declared(podTemplate={"spec": {"hostNetwork": True}}))
        refusing = says("Reconciled", "False", "PodsNotAllowed")
        api.wait_for("onyxclusters", "onyx", refusing)

    assert api.get("statefulsets", "onyx-worker") is None


@pytest.mark.parametrize("missing", ["", "image", "zookeeper"])
def test_the_webhook_refuses_what_the_reconciler_would(missing: str) -> None:
    """Also while there is no ZooKeeper or image for it."""

    class Chosen:
        settings = settings_of()

    spec = {key: value for key, value in SMALL.items() if key != missing}
    body = cluster({**spec, "podTemplate": {"spec": {"hostNetwork": True}}})
    problems, warnings = asyncio.run(check(Chosen(), body))  # type: ignore[arg-type]

    assert [each.path for each in problems] == ["spec.podTemplate.spec.hostNetwork"]
    assert warnings == ()
