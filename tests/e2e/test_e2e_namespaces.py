"""A namespace that the operator looks after is deleted with all that is in it, a Role first: it
ends by itself, its job is killed in the log, and the operator goes on in the others. The operator
is a process of this machine with the rights that the chart grants, and no more."""

from __future__ import annotations

import contextlib
import json
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kube import CommandError, Kube, run, tool, until
from tests.e2e.release import Release
from tests.e2e.test_e2e_processes import FUNCTIONS, allowed, job, operator, pool, rows, workers
from tests.support.generated.chart import NAMESPACE, objects
from tests.support.servers.cluster import Cluster
from tests.support.servers.ports import free_port

from onyx.log.server.process import ZooKeeperServer

__all__ = ["workers"]
ENDLESS = 10_000_000
ENDS_S = 60.0
NOTHING_DRAWN = {
    "tls": {"enabled": False},
    "webhook": {"enabled": False},
    "zookeeper": {"account": False},
}
ROLES = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
OF = "of-namespace"
"""Label of what is in no namespace: no other installation has the same."""


@pytest.fixture
def team(definitions: None) -> Iterator[Kube]:
    """A namespace beside that of the operator."""
    kube = Kube(f"onyx-e2e-{uuid.uuid4().hex[:6]}")
    kube.kubectl("create", "namespace", kube.namespace)
    yield kube
    with contextlib.suppress(CommandError):
        kube.kubectl("delete", "namespace", kube.namespace, "--timeout=60s")


@pytest.fixture
def their_workers(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Cluster]:
    """The workers of that namespace: a tenancy is one namespace's, for good."""
    folder = tmp_path / "team"
    folder.mkdir()
    with Cluster(zookeeper.address, folder, FUNCTIONS) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def no_cluster_roles(kube: Kube) -> Iterator[None]:
    """What is in no namespace goes with none."""
    yield
    kinds = "clusterrole,clusterrolebinding"
    kube.kubectl("delete", kinds, "--selector", f"{OF}={kube.namespace}")


def grant(home: Kube, values: dict[str, Any], *, only_in: str = "") -> None:
    """The roles of the chart, for the account of the operator."""
    for each in objects({"cluster": {"create": False}, **NOTHING_DRAWN, **values}):
        namespace = each["metadata"].get("namespace", "")
        if each["kind"] not in ROLES or namespace != (only_in or namespace):
            continue
        for subject in each.get("subjects", ()):
            subject["namespace"] = home.namespace
        if namespace == NAMESPACE:  # of the release
            each["metadata"]["namespace"] = namespace = home.namespace
        if not namespace:
            for named in (each["metadata"], each.get("roleRef", {})):
                named["name"] = f"{named.get('name')}-of-{home.namespace}"
            each["metadata"]["labels"] = {OF: home.namespace}
        home.kubectl(
            *(("--namespace", namespace) if namespace else ()),
            *("apply", "--filename", "-"),
            given=json.dumps(each),
        )


def credentials(home: Kube, folder: Path) -> Path:
    """A kubeconfig with the token of the operator's account."""
    with contextlib.suppress(CommandError):
        home.kubectl("create", "serviceaccount", "onyx-operator")
    token = home.kubectl("create", "token", "onyx-operator").strip()
    config = json.loads(run([tool("kubectl"), "config", "view", "--raw", "--output", "json"]))
    for each in config["users"]:
        each["user"] = {"token": token}
    file = folder / "kubeconfig.json"
    file.write_text(json.dumps(config))
    return file


def alive(port: str) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=10) as answer:
        return bool(answer.status == 200)


def start(kube: Kube, name: str, workers: Cluster, out: Path) -> None:
    kube.apply(pool(workers))
    kube.apply(job(name, out, segments=ENDLESS, per_second=100))


@pytest.mark.parametrize("scope", ["names", "labels", "all"])
def test_a_namespace_is_deleted_under_the_operator(
    kube: Kube, team: Kube, workers: Cluster, their_workers: Cluster, tmp_path: Path, scope: str
) -> None:
    for each in (workers, their_workers):
        each.start_workers(1, peers=4)
    names = [kube.namespace, team.namespace]
    label = f"team-{uuid.uuid4().hex[:6]}"
    values: dict[str, Any] = {
        "names": {"watchNamespaces": names},
        "labels": {"watchNamespaceLabels": {label: "on"}, "watchNamespaces": names[:1]},
        "all": {"clusterWide": True},
    }[scope]
    variables = {
        "names": {"ONYX_OPERATOR_NAMESPACES": ",".join(names)},
        "labels": {"ONYX_OPERATOR_NAMESPACE_LABELS": f"{label}=on"},
        "all": {"ONYX_OPERATOR_NAMESPACES": ""},
    }[scope]
    grant(kube, values)
    team.kubectl("label", "namespace", team.namespace, f"{label}=on")
    port = str(free_port())
    variables |= {
        "KUBECONFIG": str(credentials(kube, tmp_path)),
        "ONYX_OPERATOR_SERVER_PORT": port,
        **allowed({kube.namespace: workers, team.namespace: their_workers}),
    }
    with operator(kube, tmp_path / "operator.log", **variables):
        start(team, "theirs", their_workers, tmp_path / "theirs")
        until(lambda: rows(tmp_path / "theirs"), "it writes")
        job_id = team.get("oj", "theirs")["status"]["jobId"]

        if scope == "names":
            team.kubectl("delete", "role,rolebinding", "--all")
        team.kubectl("delete", "namespace", team.namespace, f"--timeout={ENDS_S:.0f}s")

        until(lambda: job_id in killed(their_workers), "its job is killed")
        start(kube, "ours", workers, tmp_path / "ours")
        until(lambda: rows(tmp_path / "ours"), "the others go on")
        assert alive(port)

        team.kubectl("create", "namespace", team.namespace)
        team.kubectl("label", "namespace", team.namespace, f"{label}=on")
        if scope == "names":
            grant(kube, values, only_in=team.namespace)
        start(team, "again", their_workers, tmp_path / "again")
        until(lambda: team.phase("again") != "", "it is looked after again")
        kube.kubectl("delete", "oj,oc", "--all", "--timeout=60s")


def test_a_typo_in_a_pod_template_is_a_condition_and_a_warning(
    kube: Kube, workers: Cluster, tmp_path: Path
) -> None:
    body: Any = pool(workers)
    body["spec"]["podTemplate"] = {"spec": {"affinity": {"nodeAffinitty": {}}}}
    what = "spec.podTemplate.spec.affinity.nodeAffinitty: field not declared in schema"
    with operator(kube, tmp_path / "operator.log", **allowed({kube.namespace: workers})):
        kube.apply(body)
        until(lambda: reported(kube), "it is said")
        found = {each["type"]: each for each in reported(kube)}
        assert [found[each]["status"] for each in ("Reconciled", "Ready")] == ["False", "False"]
        assert all(what in found[each]["message"] for each in ("Reconciled", "Ready"))
        events = until(lambda: warnings(kube), "it is an event")
        assert [(each["reason"], what in each["message"]) for each in events] == [
            ("ApplyFailed", True)
        ]
        body["spec"]["podTemplate"] = {"spec": {"nodeSelector": {"disk": "ssd"}}}
        kube.apply(body)
        until(lambda: all(each["status"] == "True" for each in reported(kube)), "it is mended")


def reported(kube: Kube) -> list[Any]:
    """The conditions of the cluster."""
    found: list[Any] = kube.get("oc", "onyx").get("status", {}).get("conditions", [])
    return found


def warnings(kube: Kube) -> list[Any]:
    return [each for each in kube.list("events") if each["type"] == "Warning"]


def test_a_namespace_with_the_operator_and_a_running_job_in_it_ends_and_leaves_nothing(
    nodes: None, kube: Kube, team: Kube
) -> None:
    release = Release(kube)
    release.install("--set", f"watchNamespaces={{{kube.namespace},{team.namespace}}}")
    release.start_squares("inside", per_second=100).await_some()
    kinds = {each["kind"] for each in belongings(kube)}
    assert kinds >= {"Role", "ClusterRole", "ValidatingWebhookConfiguration"}

    kube.kubectl("delete", "namespace", kube.namespace, "--timeout=100s")

    until(lambda: not belongings(kube), "what Helm has made outside of it is gone")
    kube.kubectl("create", "namespace", kube.namespace)


def belongings(kube: Kube) -> list[Any]:
    """What Helm has made for the release of a namespace outside of it."""
    kinds = f"{','.join(ROLES)},validatingwebhookconfiguration,mutatingwebhookconfiguration"
    found = json.loads(kube.kubectl("get", kinds, "--all-namespaces", "--output", "json"))
    return [
        each
        for each in found["items"]
        if each["metadata"].get("namespace") != kube.namespace
        and each["metadata"].get("annotations", {}).get("meta.helm.sh/release-namespace")
        == kube.namespace
    ]


def killed(workers: Cluster) -> list[str]:
    """The jobs that the log says were killed."""
    return [str(each) for each in workers.client.replica().killed_jobs]
