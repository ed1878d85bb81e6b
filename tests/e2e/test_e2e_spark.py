"""Spark on a cluster: a Connect server that the operator runs, with executors as pods; what runs
there is a stage, or a whole job."""

from __future__ import annotations

import json
from typing import Any

import yaml
from tests.e2e.kube import until
from tests.e2e.release import FLIGHTS, NAME, Release, conditions

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


VALUES = ["--set", "spark.enabled=true", "--set-json", f"cluster.spark={json.dumps(SMALL)}"]
_DRIVES = """
import pathlib
lines = [path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
print(any(b"onyx.spark.query" in line for line in lines))
"""


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
    until(lambda: is_ready(release), "the Spark server answers")
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


def test_a_job_on_spark_survives_that_the_pod_of_its_driver_is_lost(release: Release) -> None:
    release.prepare_flights()
    job = yaml.safe_load((FLIGHTS / "windows.yaml").read_text("utf-8"))
    job["metadata"]["name"] = "whole"
    job["spec"]["engine"] = "spark"
    for task in job["spec"]["catalog"]:
        path = task.get("options", {}).get("path", "")
        if path.startswith("out/"):
            task["options"]["path"] = f"whole/{path.removeprefix('out/')}"
    until(lambda: is_ready(release), "the Spark server answers")
    release.kube.apply(job)
    until(lambda: driver(release), "a worker holds the driver")

    release.kube.delete_at_once("pod", driver(release))

    release.await_completed("whole")
    check = ["python", "/app/check_windows.py", "/data/whole"]
    reported = release.kube.kubectl("exec", release.worker(), "--", *check)
    assert "windows agree with pandas" in reported
    release.await_ready()


def test_the_test_of_the_chart_runs_a_job_on_spark(release: Release) -> None:
    until(lambda: is_ready(release), "the Spark server answers")
    assert "Phase:          Succeeded" in release.kube.helm("test", NAME, "--timeout", "4m")
    states = {each["name"]: each["state"] for each in release.jobs_by_log()}
    assert states["onyx-test-spark"] == "completed"


def test_without_its_key_the_server_and_its_executors_are_gone(release: Release) -> None:
    until(lambda: release.kube.list("pods", EXECUTORS), "executors run")
    removed = json.dumps([{"op": "remove", "path": "/spec/spark"}])
    release.kube.kubectl("patch", "oc", NAME, "--type=json", "--patch", removed)
    until(lambda: not release.kube.list("pods", SERVER), "the server is gone")
    until(lambda: not release.kube.list("pods", EXECUTORS), "its executors are gone")


def driver(release: Release) -> str:
    """Name of the pod in which the driver of a job on Spark runs; empty if there is none."""
    pods = [release.worker(number) for number in range(2)]
    return next((pod for pod in pods if "True" in release.kube.python(pod, _DRIVES)), "")


def parts(release: Release) -> int:
    """How many parts the job has written."""
    listed = "import pathlib; print(len(list(pathlib.Path('/data/staged').rglob('*.parquet'))))"
    return int(release.kube.python(release.worker(), listed))
