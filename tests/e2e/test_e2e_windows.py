"""Windows on a cluster: faults change nothing of what is written, and state needs a place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.e2e.kube import Kube, until
from tests.e2e.release import FLIGHTS, NAME, Release
from tests.e2e.windowed import Windowed

POOL = "unshared"
VALUES = ("--set", f"tls.dnsNames={{{POOL}-worker.NAMESPACE.svc}}")
"""A cluster that the chart does not make has its name in the certificate that is drawn."""
ROUTES = ("departures", "late-share", "stays")
_REPEATS = """
import pathlib, sys
lines = [line for path in pathlib.Path(sys.argv[1]).rglob("*.jsonl") for line in path.open()]
print(len(lines) - len(set(lines)))
"""
OWN_FOLDER = {
    "spec": {
        "volumes": [{"name": "own", "emptyDir": {}}],
        "containers": [{"name": "worker", "volumeMounts": [{"name": "own", "mountPath": "/own"}]}],
    }
}
"""Of a pod in which a path that is the same everywhere is a folder of each worker's own."""


def test_a_worker_that_is_lost_changes_no_window_of_the_flights(release: Release) -> None:
    release.prepare_flights()
    job = yaml.safe_load((FLIGHTS / "windows.yaml").read_text("utf-8"))
    job["metadata"]["name"] = "lost"
    for task in job["spec"]["catalog"]:
        path = task.get("options", {}).get("path", "")
        if path.startswith("out/"):
            task["options"]["path"] = f"lost/{path.removeprefix('out/')}"
    release.kube.apply(job)
    until(lambda: state(release, "lost", "hours", "JFK"), "hours of JFK are gathered")

    release.kube.delete_at_once("pod", release.worker(1))

    assert release.kube.phase("lost") != "Completed", "the job was too short for this test"
    release.await_completed("lost")
    reported = release.kube.kubectl(
        "exec", release.worker(), "--", "python", "/app/check_windows.py", "/data/lost"
    )
    assert "windows agree with pandas" in reported
    pod = release.worker()
    assert [release.kube.python(pod, _REPEATS, f"/data/lost/{each}") for each in ROUTES] == [
        "0\n",
        "0\n",
        "0\n",
    ]
    release.await_ready()


def test_scaling_up_and_down_changes_no_window(release: Release) -> None:
    job = Windowed(release, "scaled", segments=12_000)
    job.start(per_second=200)
    job.await_more()

    release.kube.kubectl("scale", "oc/onyx", "--replicas=3")
    release.await_ready(workers=3)
    job.await_more()
    release.kube.kubectl("scale", "oc/onyx", "--replicas=2")
    release.await_ready(workers=2)

    job.assert_unfinished()
    job.assert_exact()


def test_an_edit_that_resumes_changes_no_window(release: Release) -> None:
    job = Windowed(release, "edited", segments=12_000)
    job.start(per_second=200, upgradePolicy="KeepState")
    job.await_more()
    old = release.kube.get("oj", "edited")["status"]["jobId"]

    job.start(per_second=250, upgradePolicy="KeepState")

    until(lambda: release.goes_on_from("edited", old), "the new version has its place")
    job.await_more()
    job.assert_unfinished()
    job.assert_exact()
    states = {each["id"]: each["state"] for each in release.jobs_by_log()}
    assert states[old] == "killed"


def state(release: Release, job: str, window: str, key: str) -> list[Any]:
    """What a window of a job has gathered for a key, asked in a worker's pod while it runs."""
    (job_id,) = [each["id"] for each in release.jobs_by_log() if each["name"] == job]
    question = ["onyx", "state", job_id, window, "--key", key, "--json"]
    reported = release.kube.kubectl("exec", release.worker(), "--", *question)
    extents = [json.loads(line) for line in reported.splitlines() if line.startswith("{")]
    assert all(each["key"] == key for each in extents)
    return extents


# --- without a place for state -------------------------------------------------------------------


@pytest.fixture
def pool(release: Release, request: pytest.FixtureRequest) -> Iterator[str]:
    """Another pool of workers, with the keys that the test names and no shared volume."""
    spec = release.kube.get("oc", NAME)["spec"] | request.param
    del spec["data"]
    kind = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxCluster", "metadata": {"name": POOL}}
    release.kube.apply({**kind, "spec": spec})
    release.kube.wait(f"oc/{POOL}", "Ready")
    yield POOL
    release.kube.kubectl("delete", "oc", POOL, "--wait", "--timeout=60s")


@pytest.mark.parametrize("pool", [{}], indirect=True, ids=["nothing"])
def test_without_a_place_for_state_a_windowed_job_says_what_to_set(
    release: Release, pool: str
) -> None:
    reported = described_failure(release.kube, Windowed(release, "no-place", 1_000), pool)

    assert "state cannot be kept in /app/.onyx/state" in reported
    assert "ONYX_STATE_URL" in reported


@pytest.mark.parametrize(
    "pool",
    [{"podTemplate": OWN_FOLDER, "settings": {"ONYX_STATE_URL": "/own/state"}}],
    indirect=True,
    ids=["a-folder-each"],
)
def test_a_folder_of_each_workers_own_is_no_place_for_state(release: Release, pool: str) -> None:
    reported = described_failure(release.kube, Windowed(release, "own-place", 1_000), pool)

    assert "not in /own/state of this worker" in reported
    assert "ONYX_STATE_URL" in reported


def described_failure(kube: Kube, job: Windowed, pool: str) -> str:
    """What `kubectl describe` says of the job, which fails on this pool."""
    manifest = job.manifest(per_second=100)
    manifest["spec"]["clusterRef"] = pool
    tasks = {each["name"]: each for each in manifest["spec"]["catalog"]}
    tasks["write"].update(plugin="blackhole", options={})
    for name in ("numbers", "square", "write"):
        tasks[name]["maxPeers"] = 1  # so many peers are left that some of each worker have state
    kube.apply(manifest)
    until(lambda: kube.phase(job.name) == "Failed", f"{job.name} has failed")
    reported = kube.kubectl("describe", "oj", job.name)
    kube.kubectl("delete", "oj", job.name, "--timeout=60s")
    return reported
