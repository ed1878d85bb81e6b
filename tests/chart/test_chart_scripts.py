"""What the chart runs in a cluster by itself, run here against the fake API server."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from pathlib import Path
from threading import Thread
from typing import Any

import helm_python
import pytest
import yaml
from kubernetes import config
from tests.operator.fake_api.faults import Fault
from tests.operator.fake_api.server import CRDS, FakeApi
from tests.operator.harness import Logs, Operator, cluster
from tests.operator.workers import Workers
from tests.support.generated.chart import CHART, NAMESPACE, RELEASE, named

MONITOR = "monitoring.coreos.com/v1/PodMonitor"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fake API server, which the scripts take for the one of their pod."""
    with FakeApi(*CRDS) as server:
        file = str(server.kubeconfig(tmp_path))
        monkeypatch.setattr(
            config,
            "load_incluster_config",
            lambda client_configuration: config.load_kube_config(
                file, client_configuration=client_configuration
            ),
        )
        yield server


def ran(name: str, *arguments: Any) -> int:
    """The exit code of a Python file of the chart."""
    spec = importlib.util.spec_from_file_location(name, CHART / "files" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return int(asyncio.run(module.main(*arguments)))


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    """The job of `helm test`, in the namespace of the fake."""
    job = yaml.safe_load(named("ConfigMap", "onyx-test")["data"]["job.yaml"])
    job["metadata"]["namespace"] = "default"
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    return str(file)


def test_helm_test_succeeds_when_the_job_completes(
    api: FakeApi, job_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = Logs()
    api.create(cluster())
    api.faults.add(Fault(verb="create", resource="onyxjobs", code=500))
    with Workers(logs.log()) as workers, Operator(api, logs.connect):
        helm_test = Thread(target=lambda: codes.append(ran("test_job", job_file, 20.0)))
        codes: list[int] = []
        helm_test.start()
        running = api.wait_for("onyxjobs", "onyx-test", is_running)
        workers.finish(running["status"]["jobId"])
        helm_test.join()
        api.wait_for("onyxjobs", "onyx-test", lambda job: job is None)

    assert codes == [0]
    reported = capsys.readouterr().out
    assert "not accepted yet: " in reported
    assert "Completed: " in reported


def is_running(job: Any) -> bool:
    return job is not None and job.get("status", {}).get("phase") == "Running"


def test_helm_test_fails_and_says_why_when_nobody_runs_the_job(
    api: FakeApi, job_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("test_job", job_file, 3.0) == 1

    reported = capsys.readouterr().out
    assert "not seen by the operator" in reported
    assert "not completed in time; see: kubectl describe oc,oj -n default" in reported
    assert api.get("onyxjobs", "onyx-test") is None


def test_definitions_are_upgraded(api: FakeApi, tmp_path: Path) -> None:
    folder = tmp_path / "crds"
    folder.mkdir()
    for file in CRDS:
        text = file.read_text().replace("Edges [from, to]", "The edges [from, to]")
        (folder / file.name).write_text(text)
    before = api.get("customresourcedefinitions", "onyxjobs.onyx.dev")

    assert ran("upgrade_crds", str(folder)) == 0

    after = api.get("customresourcedefinitions", "onyxjobs.onyx.dev")
    assert "The edges" not in yaml.safe_dump(before)
    assert "The edges [from, to]" in yaml.safe_dump(after)


def test_the_job_that_upgrades_definitions_has_them_and_the_right_to_just_these() -> None:
    values = {"crds": {"upgrade": True}}
    files = named("ConfigMap", "onyx-crds", values)["data"]
    (rule,) = named("ClusterRole", "onyx-onyx-crds", values)["rules"]
    names = [yaml.safe_load(text)["metadata"]["name"] for text in map(Path.read_text, CRDS)]

    assert {name: files[name] for name in files if name.endswith(".yaml")} == {
        file.name: file.read_text() for file in CRDS
    }
    assert (rule["verbs"], rule["resourceNames"]) == (["patch"], names)


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_auto_asks_the_api_server_whether_it_knows_the_kind(
    api: FakeApi, tmp_path: Path, known: bool
) -> None:
    """Helm renders with what the server answers; a template of ours ends with what came out."""
    if known:
        api.create(pod_monitors())
    copy = tmp_path / "onyx"
    shutil.copytree(CHART, copy)
    wanted = f'include "onyx.wanted" (dict "root" $ "create" "auto" "api" "{MONITOR}")'
    (copy / "templates" / "ask.yaml").write_text(f'{{{{ fail (printf "<%s>" ({wanted})) }}}}')

    with (
        helm_python.Config(
            kubeconfig_path=str(api.kubeconfig(tmp_path)), namespace=NAMESPACE
        ) as helm,
        pytest.raises(helm_python.HelmError) as ended,
    ):
        helm.install(copy, RELEASE, dry_run="server")

    assert ("<true>" if known else "<>") in str(ended.value)


def pod_monitors() -> dict[str, Any]:
    """The definition of PodMonitor, as far as discovery goes."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    group = MONITOR.partition("/")[0]
    names = {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podmonitors.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
