"""The number of ZooKeeper servers cannot change by itself: Helm renders with what the API server
reports of the servers that run. A template of ours ends with what came out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import helm_python
import pytest
from tests.operator.fake_api.server import CRDS, FakeApi
from tests.support.generated.chart import CHART, NAMESPACE, RELEASE, named, notes

ALLOWED = "<allowed>"


def rendered(tmp_path: Path, running: int, values: dict[str, Any]) -> str:
    """How rendering ends when so many servers run."""
    copy = tmp_path / "onyx"
    shutil.copytree(CHART, copy)
    # Rendered after the templates that lie deeper, of which one makes the checks.
    (copy / "templates" / "end.yaml").write_text(
        f'{{{{ include "onyx.zookeeper.check" . }}}}{{{{ fail "{ALLOWED}" }}}}'
    )
    with FakeApi(*CRDS) as api:
        if running >= 0:
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            api.create(servers(running))
        kubeconfig = str(api.kubeconfig(tmp_path))
        with (
            helm_python.Config(kubeconfig_path=kubeconfig, namespace=NAMESPACE) as helm,
            pytest.raises(helm_python.HelmError) as ended,
        ):
            helm.install(copy, RELEASE, {"zookeeper": values}, dry_run="server")
    return str(ended.value)


def servers(replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "onyx-zookeeper", "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "serviceName": "x",
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "zookeeper", "image": "x"}]},
            },
        },
    }


@pytest.mark.parametrize(
    ("running", "values", "message"),
    [
        (-1, {"replicas": 3}, ALLOWED),
        (1, {"replicas": 1}, ALLOWED),
        (3, {"replicas": 3}, ALLOWED),
        (1, {"replicas": 3, "grow": True}, ALLOWED),
        (3, {"replicas": 3, "grow": True}, ALLOWED),
        (0, {"replicas": 3}, ALLOWED),
        (1, {"replicas": 3}, "zookeeper.replicas=3, and 1 runs: all jobs pause"),
        (1, {"replicas": 3}, "kubectl -n onyx delete pod onyx-zookeeper-0"),
        (3, {"replicas": 1}, "3 servers run: fewer servers may lack what the others had agreed on"),
        (3, {"replicas": 1, "grow": True}, "set zookeeper.replicas=3"),
        (3, {"replicas": 1, "address": "elsewhere:2181"}, ALLOWED),
    ],
)
def test_the_number_of_servers_changes_only_as_documented(
    tmp_path: Path, running: int, values: dict[str, Any], message: str
) -> None:
    assert message in rendered(tmp_path, running, values)


def test_the_second_step_of_growing_is_told() -> None:
    reported = notes({"zookeeper": {"replicas": 3, "grow": True}})
    assert "kubectl -n onyx delete pod onyx-zookeeper-0" in reported
    assert "delete pod" not in notes({"zookeeper": {"replicas": 3}})


def test_the_volumes_stay_unless_it_is_asked_for() -> None:
    def retention(values: dict[str, Any]) -> Any:
        spec = named("StatefulSet", "onyx-zookeeper", values)["spec"]
        return spec["persistentVolumeClaimRetentionPolicy"]

    removed = {"zookeeper": {"persistence": {"whenDeleted": "Delete"}}}
    assert retention({}) == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert retention(removed) == {"whenDeleted": "Delete", "whenScaled": "Retain"}
    assert "kubectl -n onyx delete pvc" in notes()
    assert "delete pvc" not in notes(removed)


def test_one_server_knows_its_name_so_that_a_second_one_is_refused() -> None:
    (container,) = named("StatefulSet", "onyx-zookeeper")["spec"]["template"]["spec"]["containers"]
    found = {each["name"]: each.get("value") for each in container["env"]}
    servers = "onyx-zookeeper-0.onyx-zookeeper-servers.onyx.svc"
    assert found["ONYX_ZOOKEEPER_SERVER_SERVERS"] == servers
