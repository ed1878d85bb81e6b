"""Helm's verbs: upgrade and rollback while a job runs, and uninstalling without a trace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.e2e.kube import CommandError, Kube, until
from tests.e2e.release import CHART, WORKERS, Release

VALUES_RELEASED = Path(__file__).parents[1] / "support" / "generated" / "values_released"
LEFT_BY_KUBERNETES = {"configmap/kube-root-ca.crt", "serviceaccount/default"}


def test_upgrade_and_rollback_while_a_job_runs(release: Release) -> None:
    squares = release.start_squares("upgraded", per_second=200)
    squares.await_some()
    first = pod_uids(release)

    release.upgrade("--set", "cluster.settings.ONYX_TELEMETRY_LOG_LEVEL=DEBUG")
    until(lambda: not first & pod_uids(release), "every worker is replaced")
    release.await_ready()
    assert log_level(release) == "DEBUG"
    second = pod_uids(release)

    release.kube.helm("rollback", "onyx", "1")
    until(lambda: not second & pod_uids(release), "every worker is replaced again")
    release.await_ready()
    assert log_level(release) == ""

    squares.assert_goes_on()
    squares.stop_and_assert_whole()


DRAWN = ("onyx-authority", "onyx-tls", "onyx-zookeeper-account")
"""Secrets that the operator draws."""


def test_uninstalling_leaves_definitions_and_zookeepers_volume_with_its_secrets(
    nodes: None, kube: Kube
) -> None:
    release = Release(kube)
    release.install()
    squares = release.start_squares("last", segments=100, per_second=100)
    squares.assert_whole()

    kube.kubectl("delete", "oj", "--all", "--timeout=60s")
    kube.helm("uninstall", "onyx", "--wait")

    kept = {"persistentvolumeclaim/data-onyx-zookeeper-0", *(f"secret/{name}" for name in DRAWN)}
    until(lambda: left(kube) == kept, "nothing else is left in the namespace")
    release.install()
    assert [each["name"] for each in release.jobs_by_log()] == [squares.name], (
        "nothing is forgotten"
    )
    kube.helm("uninstall", "onyx", "--wait")
    kube.kubectl("delete", "pvc", "--selector", "app.kubernetes.io/instance=onyx")
    kube.kubectl("delete", "secret", *DRAWN)
    until(lambda: not left(kube), "nothing is left in the namespace")
    assert not left_outside(kube)
    definitions = kube.kubectl("get", "crd", "--output", "name").split()
    assert sum(each.endswith(".onyx.dev") for each in definitions) == 2


def test_zookeeper_grows_from_one_server_to_three_while_a_job_runs(release: Release) -> None:
    squares = release.start_squares("grown", per_second=200)
    squares.await_some()

    with pytest.raises(CommandError, match="needs a second step"):
        release.upgrade("--set", "zookeeper.replicas=3")
    release.upgrade("--set", "zookeeper.replicas=3", "--set", "zookeeper.grow=true")
    until(lambda: waiting(release) == [1, 2], "the new servers wait")
    squares.assert_goes_on()
    release.kube.kubectl("delete", "pod", "onyx-zookeeper-0")
    until(lambda: ready_servers(release) == 3, "all servers are ready")

    squares.assert_goes_on()
    release.kube.delete_at_once("pod", "onyx-zookeeper-0")
    squares.assert_goes_on()
    squares.stop_and_assert_whole()
    with pytest.raises(CommandError, match="cannot be lowered"):
        release.upgrade()


@pytest.mark.parametrize("way", ["--reuse-values", "--reset-then-reuse-values"])
def test_an_upgrade_may_keep_the_values_of_an_older_chart(
    nodes: None, kube: Kube, tmp_path: Path, way: str
) -> None:
    older = tmp_path / "onyx"
    shutil.copytree(CHART, older)
    shutil.copy(VALUES_RELEASED / "0.1.0.yaml", older / "values.yaml")
    release = Release(kube)
    release.install("--set", "zookeeper.persistence.whenDeleted=Delete", chart=older)
    kube.helm("upgrade", "onyx", str(CHART), way)
    release.await_ready()
    spec = kube.get("statefulset", "onyx-zookeeper")["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"
    release.remove()


def waiting(release: Release) -> list[int]:
    """Numbers of the servers that say that they wait for others."""
    return [
        number
        for number in range(3)
        if "waiting for the other ZooKeeper servers"
        in release.kube.kubectl("logs", f"onyx-zookeeper-{number}", "--tail=-1")
    ]


def ready_servers(release: Release) -> int:
    found = release.kube.get("statefulset", "onyx-zookeeper")
    return int(found["status"].get("readyReplicas", 0))


def pod_uids(release: Release) -> set[str]:
    return {pod["metadata"]["uid"] for pod in release.kube.list("pods", WORKERS)}


def log_level(release: Release) -> str:
    """As it is set for the pods; empty when it is not."""
    (container,) = release.kube.get("pod", release.worker())["spec"]["containers"]
    found = [each for each in container["env"] if each["name"] == "ONYX_TELEMETRY_LOG_LEVEL"]
    return str(found[0]["value"]) if found else ""


def left(kube: Kube) -> set[str]:
    """Everything in the namespace but events and what Kubernetes puts in each."""
    kinds = kube.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
    wanted = ",".join(each for each in kinds if not each.startswith("events"))
    found = kube.kubectl("get", wanted, "--output", "name").split()
    return set(found) - LEFT_BY_KUBERNETES


def left_outside(kube: Kube) -> list[str]:
    """Objects outside of namespaces that are ours and name this namespace."""
    kinds = kube.kubectl(
        "api-resources", "--namespaced=false", "--verbs=list,delete", "--output=name"
    ).split()
    selector = "app.kubernetes.io/name=onyx"
    found = kube.kubectl("get", ",".join(kinds), "--selector", selector, "--output", "json")
    return [
        f"{each['kind']}/{each['metadata']['name']}"
        for each in json.loads(found)["items"]
        if kube.namespace in json.dumps(each)
    ]
