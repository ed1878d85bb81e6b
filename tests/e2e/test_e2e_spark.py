"""Spark on a cluster: a Connect server that the operator runs, with executors as pods; what runs
there is a stage, a window, or a whole job, over inputs without end too."""

from __future__ import annotations

import json
from typing import Any

import yaml
from tests.e2e.kube import until
from tests.e2e.release import FLIGHTS, NAME, WITH_SPARK, Release, Squares, conditions
from tests.e2e.windowed import Windowed

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


VALUES = [
    *("--set", "spark.enabled=true", "--set-json", f"cluster.spark={json.dumps(SMALL)}"),
    # Some of the jobs have a driver of their own in a worker.
    *WITH_SPARK,
]
_AWAIT_STAGE = """
import pathlib, time
state, until_s = pathlib.Path("/data/.onyx/state"), time.monotonic() + 60
while time.monotonic() < until_s:
    if any(state.glob("*/windows.spark/*/r-*/_temporary")):
        print("it writes")
        break
    time.sleep(0.02)
"""
"""Until executors write the result of a firing."""
_STRANGER = """
import sys
from pyspark.sql import SparkSession
try:
    print(SparkSession.builder.remote(f"sc://{sys.argv[1]}:15002").create().version)
except Exception as error:
    print(error)
"""
_METRICS = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
_COUNTED = """
import collections, json, pathlib
rows = [json.loads(line) for path in pathlib.Path("/data/counted/engines").rglob("*.jsonl")
        for line in path.open() if line.strip()]
last = collections.Counter(row["group"] for row in rows)
print(len(rows), sorted((row["group"], row["count"]) for row in rows) ==
      sorted((group, n + 1) for group, rows in last.items() for n in range(rows)))
"""
_DRIVES = """
import pathlib
lines = [path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
print(any(b"onyx.spark_query" in line for line in lines))
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
        "apiVersion": "onyx.dev/v1beta1",
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


def test_a_window_by_spark_is_exact_although_an_executor_is_lost_in_a_stage(
    release: Release,
) -> None:
    until(lambda: is_ready(release), "the Spark server answers")
    until(lambda: len(executors(release)) == 2, "two executors run")
    job = Windowed(release, "by-spark", segments=12_000, width=1_000, engine="spark")
    job.start(per_second=300)
    until(lambda: release.kube.python(release.worker(), _AWAIT_STAGE), "a firing is aggregated")

    lost = executors(release)[0]
    release.kube.delete_at_once("pod", lost)

    job.assert_unfinished()
    job.assert_exact()
    until(lambda: len(executors(release)) == 2, "the executor was replaced")
    assert lost not in executors(release)


def test_a_job_without_end_on_executors_is_exact_although_all_its_pods_are_lost(
    release: Release,
) -> None:
    """Its micro-batches run in executors of the server; the loop over them is in a worker."""
    until(lambda: is_ready(release), "the Spark server answers, and two executors run")
    squares = Squares(release, "endless", segments=0)
    release.kube.apply(with_windows(squares))
    squares.await_some()

    lost = executors(release)[0]
    (server,) = (each["metadata"]["name"] for each in release.kube.list("pods", SERVER))
    for pod in (lost, server, until(lambda: driver(release), "a worker has the driver")):
        wanted = squares.written().distinct + 500
        release.kube.delete_at_once("pod", pod)
        await_more_than(wanted, squares)

    stop_and_assert_each_written_once(release, squares)


def await_more_than(distinct: int, squares: Squares) -> None:
    until(lambda: squares.written().distinct > distinct, "the job goes on")


def stop_and_assert_each_written_once(release: Release, squares: Squares) -> int:
    """How many numbers were written, each once, and by the windows too."""
    release.await_ready()
    squares.stop_and_assert_whole()
    found = squares.written()
    assert found.rows == found.distinct, "each segment is written once"
    paths = (f"/data/squares/{squares.name}", f"/data/windowed/{squares.name}")
    assert release.kube.tool(release.worker(), "sums_agree", *paths).strip() == "they agree"
    return found.rows


def with_windows(squares: Squares) -> dict[str, Any]:
    """A job without an end that writes numbers, and their sums by group and extent."""
    job = squares.manifest(per_second=200)
    spec = job["spec"]
    read, square, write = spec["catalog"]
    del read["options"]["segments"]
    read["watermarkKey"] = "n"
    square["fn"] = "squares:square_of_group"
    totals = {**write, "name": "totals",
              "options": {**write["options"], "path": f"windowed/{squares.name}"}}  # fmt: skip
    sums = {"name": "sums", "type": "reduce", "groupByKey": "group", "fluxPolicy": "continue"}
    spec["catalog"] += [sums, totals]
    spec["workflow"] += [["square", "sums"], ["sums", "totals"]]
    spec["windows"] = [
        {"id": "hundreds", "task": "sums", "type": "fixed", "windowKey": "n",
         "range": [100, "elements"], "aggregation": ["sum", "square"]}
    ]  # fmt: skip
    spec["triggers"] = [
        {"windowId": "hundreds", "type": "watermark", "postEvictor": ["all"],
         "emit": "squares:total"}
    ]  # fmt: skip
    spec |= {"engine": "spark", "guarantee": "exactly-once"}
    return job


def test_a_job_without_end_goes_to_peers_and_back_while_it_is_busy_and_a_worker_is_lost(
    release: Release,
) -> None:
    """Windows and state by key go on from engine to engine."""
    until(lambda: is_ready(release), "the Spark server answers")
    squares = Squares(release, "engines", segments=0)
    job = with_counts(with_windows(squares))
    release.kube.apply(job)
    squares.await_some()
    for engine in ("peers", "spark"):
        old = release.kube.get("oj", "engines")["status"]["jobId"]
        release.kube.apply({**job, "spec": {**job["spec"], "engine": engine}})
        if engine == "spark":
            release.kube.delete_at_once("pod", release.worker(1))
        status = until(lambda old=old: upgraded(release, old), f"it goes on with {engine}")
        assert status["upgradedFrom"]["jobId"] == old
        await_more_than(squares.written().distinct + 300, squares)

    rows = stop_and_assert_each_written_once(release, squares)
    assert release.kube.python(release.worker(), _COUNTED).split() == [str(rows), "True"]


def with_counts(job: dict[str, Any]) -> dict[str, Any]:
    """The job, which also counts the numbers of each group, and keeps its state over edits."""
    spec = job["spec"]
    spec["upgradePolicy"] = "KeepState"
    (write,) = (each for each in spec["catalog"] if each["name"] == "write")
    counts = {**write, "name": "counts", "options": {**write["options"], "path": "counted/engines"}}
    count = {"name": "count", "type": "function", "fn": "squares:counted", "groupByKey": "group",
             "fluxPolicy": "continue", "state": {"count": "value[int]"}}  # fmt: skip
    spec["catalog"] += [count, counts]
    spec["workflow"] += [["square", "count"], ["count", "counts"]]
    return job


def upgraded(release: Release, old: str) -> Any:
    """The status of the job, once it runs in the place of the one with this id."""
    status = release.kube.get("oj", "engines")["status"]
    return status if status["jobId"] != old and status["phase"] == "Running" else None


def test_who_shows_no_token_gets_no_session_and_everyone_sees_metrics(release: Release) -> None:
    until(lambda: is_ready(release), "the Spark server answers")
    python, pod = release.kube.python, release.worker()
    assert "No authentication token provided" in python(pod, _STRANGER, f"{NAME}-spark")
    for path in ("/metrics/prometheus", "/metrics/executors/prometheus"):
        found = python(pod, _METRICS, f"http://{NAME}-spark:4040{path}")
        assert "metrics_onyx_driver_" in found or "metrics_executor_" in found


def test_executors_that_find_no_node_are_in_the_status(release: Release) -> None:
    until(lambda: is_ready(release), "the Spark server answers")
    pod = {"nodeSelector": {"disk": "nowhere"}, "tolerations": [{"operator": "Exists"}]}
    wanted: Any = {"spec": {"spark": {"executors": {"podTemplate": {"spec": pod}}}}}
    release.kube.kubectl("patch", "oc", NAME, "--type=merge", "--patch", json.dumps(wanted))

    def pending() -> str:
        (found,) = conditions(release.kube.get("oc", NAME), "SparkReady")
        return str(found["message"]) if found["reason"] == "ExecutorsPending" else ""

    said = until(pending, "executors are Pending")
    assert "0 of 2 executors run, 2 Pending" in said
    assert "Unschedulable: 0/" in said
    (*_, made) = release.kube.list("pods", EXECUTORS)
    assert made["spec"]["nodeSelector"] == {"disk": "nowhere"}
    assert {"operator": "Exists"} in made["spec"]["tolerations"]

    wanted = {"spec": {"spark": {"executors": {"podTemplate": None}}}}
    release.kube.kubectl("patch", "oc", NAME, "--type=merge", "--patch", json.dumps(wanted))
    until(lambda: is_ready(release), "the executors run again")


def test_a_job_whose_files_no_executor_would_see_waits_for_another_place(release: Release) -> None:
    job = manifest("nowhere")
    job["spec"]["catalog"][-1]["options"]["path"] = "/tmp/staged"
    release.kube.apply(job)
    until(lambda: release.kube.phase("nowhere") == "Pending", "the job is held back")
    status = release.kube.get("oj", "nowhere")["status"]
    assert status["reason"] == "ClusterUnfit"
    assert "spec.catalog[2].options.path: of task sums is /tmp/staged" in status["message"]
    assert "nowhere" not in {each["name"] for each in release.jobs_by_log()}
    release.kube.kubectl("delete", "oj", "nowhere", "--timeout=60s")


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
