"""Contract of an API server: the built-in kinds that our operator makes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operator.contract.client import APPLY, MERGE, Answer, Client

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.yaml"))
KINDS = {
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "Service": ("api/v1", "services"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
}
CONTAINER = {
    "name": "worker",
    "image": "worker:1",
    "ports": [{"containerPort": 80}],
    "readinessProbe": {"httpGet": {"path": "/readyz", "port": 80}},
}
WORKERS: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "one"},
    "spec": {
        "serviceName": "one",
        "selector": {"matchLabels": {"app": "one"}},
        "template": {
            "metadata": {"labels": {"app": "one"}},
            "spec": {"containers": [CONTAINER], "nodeSelector": {"never": "there"}},
        },
    },
}
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "one"},
    "spec": {"clusterIP": "None", "selector": {"app": "one"}, "ports": [{"port": 80}]},
}


def path(server: Client, body: dict[str, Any], name: str = "") -> str:
    root, plural = KINDS[body["kind"]]
    return server.at(plural, name, root=root)


def create(server: Client, body: dict[str, Any]) -> Answer:
    return server.call("POST", path(server, body), body)


def patch(server: Client, body: dict[str, Any], spec: dict[str, Any]) -> Answer:
    return server.call("PATCH", path(server, body, "one"), {"spec": spec}, content=MERGE)


def test_a_stateful_set_is_filled_in(server: Client) -> None:
    spec = create(server, WORKERS).body["spec"]
    (container,) = spec["template"]["spec"]["containers"]

    assert (spec["replicas"], spec["podManagementPolicy"]) == (1, "OrderedReady")
    assert spec["revisionHistoryLimit"] == 10
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Retain"
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 30
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["readinessProbe"] == {
        "httpGet": {"path": "/readyz", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def test_a_service_is_filled_in(server: Client) -> None:
    spec = create(server, SERVICE).body["spec"]

    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "None")
    assert spec["internalTrafficPolicy"] == "Cluster"
    assert spec["ports"][0]["protocol"] == "TCP"


@pytest.mark.parametrize(
    "spec",
    [
        {"serviceName": "two"},
        {"podManagementPolicy": "Parallel"},
        {"selector": {"matchLabels": {"app": "two"}}},
    ],
)
def test_most_of_a_stateful_set_cannot_be_changed(server: Client, spec: dict[str, Any]) -> None:
    create(server, WORKERS)
    answer = patch(server, WORKERS, spec)

    assert (answer.code, answer.reason) == (422, "Invalid")
    assert "updates to statefulset spec for fields other than" in answer.body["message"]


@pytest.mark.parametrize(
    "spec", [{"replicas": -1}, {"replicas": "x"}, {"template": {"spec": {"containers": None}}}]
)
def test_what_a_stateful_set_refuses(server: Client, spec: dict[str, Any]) -> None:
    create(server, WORKERS)

    assert patch(server, WORKERS, spec).code == 422


def test_replicas_and_template_of_a_stateful_set_can_be_changed(server: Client) -> None:
    create(server, WORKERS)
    template = {"metadata": {"annotations": {"a": "b"}}}
    answer = patch(server, WORKERS, {"replicas": 3, "template": template})

    assert (answer.code, answer.body["metadata"]["generation"]) == (200, 2)


def test_the_address_of_a_service_cannot_be_changed(server: Client) -> None:
    create(server, SERVICE)

    assert patch(server, SERVICE, {"clusterIP": "10.96.3.3"}).code == 422


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_what_the_operator_makes_is_taken_and_stays_as_it_is(server: Client, file: Path) -> None:
    """Applied again it changes nothing: the operator finds no drift where there is none."""
    query = {"fieldManager": "onyx-operator", "force": "true", "fieldValidation": "Strict"}
    for body in yaml.safe_load_all(file.read_text()):
        if body["kind"] not in KINDS:
            continue
        ours = copy.deepcopy(body)
        ours["metadata"] = {**body["metadata"], "namespace": server.namespace}
        # The owner is not there, and a real garbage collector would notice.
        ours["metadata"].pop("ownerReferences", None)
        where = path(server, body, body["metadata"]["name"])
        first = server.call("PATCH", where, ours, query, APPLY)
        again = server.call("PATCH", where, ours, query, APPLY)

        assert (first.code, again.code) == (201, 200), (first.body, again.body)
        assert again.body.get("spec") == first.body.get("spec")
        generations = {each.body["metadata"].get("generation") for each in (first, again)}
        assert len(generations) == 1


@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}], ids=["applied", "dry run"])
def test_an_unknown_field_of_a_pod_is_answered_as_an_internal_error(
    server: Client, query: dict[str, str]
) -> None:
    body = copy.deepcopy(WORKERS)
    body["spec"]["template"]["spec"]["nodeSelektor"] = {}
    query = {"fieldManager": "one", "force": "true", **query}
    answer = server.call("PATCH", path(server, body, "one"), body, query, APPLY)
    assert (answer.code, answer.reason) == (500, "")
    reported = answer.body["message"]
    assert reported.startswith("failed to create typed patch object (")
    assert reported.endswith("): .spec.template.spec.nodeSelektor: field not declared in schema")
    assert server.call("GET", path(server, body, "one")).code == 404


def test_a_dry_run_of_an_apply_changes_nothing(server: Client) -> None:
    query = {"fieldManager": "one", "force": "true", "dryRun": "All"}
    body = copy.deepcopy(WORKERS)
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "controller": True,
         "uid": "00000000-0000-0000-0000-000000000000"},
    ]  # fmt: skip
    assert server.call("PATCH", path(server, body, "one"), body, query, APPLY).code == 201
    assert server.call("GET", path(server, body, "one")).code == 404
