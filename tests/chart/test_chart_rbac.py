"""The operator has the rights that it uses, and no others.

Every test of the operator runs with the rights that the chart grants (see `tests/operator/
harness.py`), so nothing is missing. Here is a life in which the operator does everything that it
can do, so nothing is left over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.http import Recorded
from tests.operator.fake_api.paths import Target
from tests.operator.fake_api.server import CRDS, FakeApi
from tests.operator.harness import (
    Logs,
    Operator,
    chart_rights,
    chart_values,
    cluster,
    deployment,
    installation,
    job,
    settings,
    with_account,
)
from tests.operator.test_watches import eventually
from tests.operator.workers import Workers
from tests.support.generated.chart import NAMESPACE, objects, outside
from tests.support.generated.rbac import Right, covers, granted, missing, needed, unused

LOOK = Target("get", "onyx.dev", "v1beta1", "onyxjobs", "", "team", "one")
APPLY = Target("patch", "apps", "v1", "statefulsets", "", "team", "one")
STATUS = Target("patch", "onyx.dev", "v1beta1", "onyxjobs", "status", "team", "one")
RULES = [
    {"apiGroups": ["onyx.dev"], "resources": ["onyxjobs"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["create"]},
]


def recorded(target: Target, *, created: bool = False) -> Recorded:
    return Recorded(target, "operator", 200, created)


def role(kind: str, namespace: str = "") -> list[dict[str, Any]]:
    metadata = {"name": "operator", **({"namespace": namespace} if namespace else {})}
    subject = {"kind": "ServiceAccount", "name": "onyx", "namespace": "home"}
    return [
        {"kind": kind, "metadata": metadata, "rules": RULES},
        {
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"kind": kind, "name": "operator"},
            "subjects": [subject],
        },
    ]


def test_a_request_needs_its_verb_on_its_resource_and_subresource() -> None:
    assert needed([recorded(LOOK), recorded(LOOK), recorded(STATUS)]) == {
        Right("team", "onyx.dev", "onyxjobs", "get", "one"),
        Right("team", "onyx.dev", "onyxjobs/status", "patch", "one"),
    }


def test_an_apply_that_creates_needs_the_right_to_create() -> None:
    assert {right.verb for right in needed([recorded(APPLY, created=True)])} == {"patch", "create"}


def test_a_role_grants_in_its_namespace_and_a_cluster_role_everywhere() -> None:
    in_team = granted(role("Role", "team"), ("home", "onyx"))
    everywhere = granted(role("ClusterRole"), ("home", "onyx"))
    wanted = Right("team", "onyx.dev", "onyxjobs", "get")

    assert len(in_team) == len(everywhere) == 4
    assert covers(in_team, wanted)
    assert covers(everywhere, wanted)
    assert not covers(in_team, wanted._replace(namespace="other"))
    assert not covers(in_team, wanted._replace(namespace=""))


def test_a_rule_with_names_grants_these_objects() -> None:
    named = [{**RULES[0], "resourceNames": ["one"]}]
    found = [{**each, "rules": named} for each in role("Role", "team")[:1]]
    rights = granted([*found, *role("Role", "team")[1:]], ("home", "onyx"))
    wanted = Right("team", "onyx.dev", "onyxjobs", "get", "one")

    assert covers(rights, wanted)
    assert not covers(rights, wanted._replace(name="other"))
    assert not covers(rights, wanted._replace(name=""))
    assert covers({wanted._replace(name="")}, wanted)
    assert unused(rights, {wanted}) == ["list onyxjobs.onyx.dev in team"]


def test_only_a_binding_of_the_account_grants() -> None:
    assert granted(role("Role", "team"), ("home", "other")) == set()
    assert granted(role("Role", "team"), ("elsewhere", "onyx")) == set()
    assert granted(role("Role", "team")[:1], ("home", "onyx")) == set()


def test_what_is_missing_and_what_is_left_over_is_told_to_be_read() -> None:
    rights = granted(role("Role", "team"), ("home", "onyx"))
    wanted = {Right("team", "onyx.dev", "onyxjobs", "get"), Right("team", "", "pods", "delete")}

    assert missing(rights, wanted) == ["delete pods in team"]
    assert unused(rights, wanted) == [
        "create events in team",
        "create pods in team",
        "list onyxjobs.onyx.dev in team",
    ]


WORKERS = {
    "selector": {"matchLabels": {"app": "stray"}},
    "template": {
        "metadata": {"labels": {"app": "stray"}},
        "spec": {"containers": [{"name": "stray", "image": "stray"}]},
    },
}


def stray(kind: str, api_version: str, owner: Any) -> dict[str, Any]:
    """An object of the cluster that the operator does not want any more."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    labels = {"onyx.dev/cluster": "onyx"}
    metadata = {"name": "stray", "labels": labels, "ownerReferences": [reference]}
    spec = WORKERS if kind == "StatefulSet" else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


STRAYS = {
    "statefulsets": ("StatefulSet", "apps/v1"),
    "services": ("Service", "v1"),
    "serviceaccounts": ("ServiceAccount", "v1"),
    "networkpolicies": ("NetworkPolicy", "networking.k8s.io/v1"),
    "poddisruptionbudgets": ("PodDisruptionBudget", "policy/v1"),
}


def watches(api: FakeApi) -> set[str]:
    """The kinds of which a watch is open, which begins after a list."""
    kinds = {"onyxjobs", "onyxclusters", "statefulsets"}
    return kinds & {each.target.resource for each in api.requests if each.target.verb == "watch"}


def everything(api: FakeApi, workers: Workers) -> None:
    """Let the operator do all that it can do: what is unused then is not needed."""
    data = {"job.yaml": json.dumps(job("big"))}
    jobs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "jobs"}, "data": data}
    api.create(jobs)
    # Somebody else's change comes first: the operator reads the object anew.
    api.faults.add(Fault(verb="patch", resource="onyxclusters", code=409))
    made = api.create(cluster())
    api.wait_for("onyxclusters", "onyx", lambda found: found["status"]["conditions"])
    for kind, version in STRAYS.values():
        api.create(stray(kind, version, made))
    for plural in STRAYS:
        api.wait_for(plural, "stray", lambda found: found is None)
    api.faults.add(Fault(verb="patch", resource="onyxjobs", code=409))
    ref = {"configMap": "jobs", "key": "job.yaml"}
    big = {**job("big"), "spec": {"jobRef": ref, "ttlSecondsAfterFinished": 0}}
    api.create(big)
    running = api.wait_for("onyxjobs", "big", lambda found: found["status"]["phase"] == "Running")
    workers.finish(running["status"]["jobId"])
    api.wait_for("onyxjobs", "big", lambda found: found is None)
    made_again(api)


def made_again(api: FakeApi) -> None:
    """What happens twice is one Event with a count."""
    for _ in range(2):
        api.delete("services", "onyx-worker")
        api.wait_for("services", "onyx-worker", bool)
    eventually(lambda: any(each["count"] > 1 for each in api.list("events")))


def prepare(api: FakeApi, values: dict[str, Any]) -> None:
    """What Helm has made, and Secrets of an operator before, which are due."""
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for each in outside(objects(values)):
        api.create(each, each["metadata"].get("namespace", ""))
    api.create(deployment(NAMESPACE, "onyx-operator"))
    for name in ("onyx-authority", "onyx-tls"):
        labels = {"app.kubernetes.io/managed-by": "onyx-operator"}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        api.create({**secret, "type": "kubernetes.io/tls", "data": {}}, NAMESPACE)


@pytest.mark.parametrize(
    ("which", "scope"),
    [
        ({}, {}),
        ({"everywhere": True}, {"NAMESPACES": ""}),
        ({"labelled": True}, {"NAMESPACE_LABELS": "onyx=on"}),
    ],
    ids=["one namespace", "all namespaces", "by label"],
)
def test_nothing_is_granted_that_is_not_used(
    which: dict[str, bool], scope: dict[str, str], tmp_path: Path
) -> None:
    rights = chart_rights(**which)
    quick = {"CLUSTERS_RESYNC_INTERVAL_S": "0.1", "JOBS_RESYNC_INTERVAL_S": "0.1"}
    values = chart_values(**which)
    drawn = installation(tmp_path, **values)
    found = with_account(settings(**{**quick, **scope, **drawn}), tmp_path)
    logs = Logs()
    with (
        FakeApi(*CRDS) as api,
        Workers(logs.log()) as workers,
    ):
        prepare(api, values)
        with Operator(api, logs.connect, found, rights=rights):
            everything(api, workers)
            eventually(lambda: len(watches(api)) == 3)

    wanted = needed(api.requests)
    deletions = [str(each) for each in rights if each.verb == "delete" and each.name]
    assert len(rights) > 20
    assert missing(rights, wanted) == []
    assert unused(rights, wanted) == sorted(deletions), "as only admission of some clusters asks"
