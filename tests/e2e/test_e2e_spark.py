"""Spark on a cluster: a Connect server that the operator runs, with executors as pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.kube import Kube, until
from tests.e2e.release import NAME, Release, conditions

SEGMENTS = 4_000
EXECUTORS = "onyx.dev/spark=executor"
SERVER = "onyx.dev/spark=server"
SMALL = {
    "memory": "700m",
    "resources": {"requests": {"cpu": "20m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
    "executors": {"instances": 2, "cores": 1, "memory": "512m"},
    "conf": {"spark.kubernetes.executor.request.cores": "20m"},
}
"""What fits on two cores beside all else."""
_READ = """
import json, sys
import pyarrow.parquet as pq
print(json.dumps(pq.read_table(sys.argv[1]).to_pylist()))
"""


@pytest.fixture
def release(nodes: None, kube: Kube) -> Iterator[Release]:
    """The chart with a Spark server."""
    release = Release(kube)
    release.install(
        "--set", "spark.enabled=true", "--set-json", f"cluster.spark={json.dumps(SMALL)}"
    )
    until(lambda: is_ready(release), "the Spark server answers")
    yield release
    kube.helm("uninstall", NAME, "--wait")


def is_ready(release: Release) -> bool:
    found = conditions(release.kube.get("oc", NAME), "SparkReady")
    return [each["status"] for each in found] == ["True"]


def executors(release: Release) -> list[str]:
    """Names of the executors that run."""
    return [
        each["metadata"]["name"]
        for each in release.kube.list("pods", EXECUTORS)
        if each["status"].get("phase") == "Running"
    ]


def manifest(name: str) -> dict[str, Any]:
    options = {"segments": SEGMENTS, "partitions": 2}
    stage = {"path": f"staged/{name}", "stage": "squares:slow_sums"}
    catalog = [
        {"name": "numbers", "type": "input", "plugin": "generator", "options": options},
        {"name": "square", "type": "function", "fn": "squares:square"},
        {"name": "sums", "type": "output", "plugin": "spark", "options": stage},
    ]
    return {
        "apiVersion": "onyx.dev/v1alpha1",
        "kind": "OnyxJob",
        "metadata": {"name": name},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["numbers", "square"], ["square", "sums"]],
            "catalog": [{**each, "maxPeers": 2} for each in catalog],
        },
    }


def test_a_stage_runs_on_executors_and_survives_that_one_is_lost(release: Release) -> None:
    until(lambda: len(executors(release)) == 2, "two executors run")
    release.kube.apply(manifest("staged"))
    until(lambda: parts(release) > 0, "the stage has something to read")

    lost = executors(release)[0]
    release.kube.delete_at_once("pod", lost)

    release.await_completed("staged")
    found = json.loads(release.kube.python(release.worker(), _READ, "/data/staged/staged/result"))
    assert {row["residue"]: row["total"] for row in found} == {
        residue: sum(n**2 for n in range(residue, SEGMENTS, 8)) for residue in range(8)
    }
    until(lambda: len(executors(release)) == 2, "the executor was replaced")
    assert lost not in executors(release)

    server = release.kube.list("pods", SERVER)[0]["metadata"]["name"]
    release.kube.kubectl("patch", "oc", NAME, "--type=json", "--patch", REMOVED)
    until(lambda: not release.kube.list("pods", SERVER), f"{server} is gone")
    until(lambda: not release.kube.list("pods", EXECUTORS), "its executors are gone")


REMOVED = json.dumps([{"op": "remove", "path": "/spec/spark"}])


def parts(release: Release) -> int:
    """How many parts the job has written."""
    listed = "import pathlib; print(len(list(pathlib.Path('/data/staged').rglob('*.parquet'))))"
    return int(release.kube.python(release.worker(), listed))
