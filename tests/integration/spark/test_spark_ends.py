"""How jobs on Spark end before their inputs do, with a real worker and a real Spark: suspended and
resumed, drained, killed in the middle of a stage."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import psutil
import pytest
from tests.support.servers.cluster import Cluster, Worker
from tests.support.servers.ports import free_port

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server
T = TypeVar("T")
PATIENCE_S = 240.0
MODULE = "ends_on_spark"
USER_CODE = """
def keyed(n):
    return {"n": n, "k": n % 50}

def summed(event, window, trigger, state_event, total):
    return {"k": state_event["group_key"], "sum": total}
"""
PARTITIONS = 2
TASKS = 20_000
"""Of a stage, which then takes minutes."""


@pytest.fixture(scope="module")
def cluster(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("ends")
    (folder / f"{MODULE}.py").write_text(USER_CODE)
    with Cluster(zookeeper.address, folder, folder / f"{MODULE}.py") as cluster:
        cluster.start_workers(1, 3)
        yield cluster


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": name},
        "spec": {"guarantee": "exactly-once", **spec},
    }


def read(**options: Any) -> dict[str, Any]:
    given = {"partitions": PARTITIONS, "fn": f"{MODULE}:keyed", **options}
    return {"name": "read", "type": "input", "plugin": "generator", "options": given}


def write(folder: Path) -> dict[str, Any]:
    given = {"path": str(folder / "out"), "format": "jsonl"}
    return {"name": "write", "type": "output", "plugin": "files", "options": given}


def wait_for(found: Callable[[], T], what: str) -> T:
    for _ in range(int(PATIENCE_S * 20)):
        if value := found():
            return value
        Event().wait(0.05)
    raise AssertionError(f"never happened: {what}")


def numbers(folder: Path) -> list[int]:
    """What is published of a job, in order; of each partition nothing may be missing before its
    last number, and nothing there twice."""
    texts = [path.read_text() for path in (folder / "out").glob("part-*")]
    found = sorted(json.loads(line)["n"] for text in texts for line in text.splitlines())
    for partition in range(PARTITIONS):
        its = [n for n in found if n % PARTITIONS == partition]
        assert its == list(range(partition, partition + PARTITIONS * len(its), PARTITIONS))
    return found


def runs_a_query(worker: Worker) -> bool:
    for each in psutil.Process(worker.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it ends just now
            if "onyx.spark_query" in each.cmdline():
                return True
    return False


@pytest.mark.slow
def test_micro_batches_go_on_after_a_suspension_and_end_with_a_drain(
    cluster: Cluster, tmp_path: Path
) -> None:
    (worker,) = cluster.workers
    endless = manifest(
        "endless",
        engine="spark",
        spark={"master": "local[1]", "sparkConf": {"spark.sql.shuffle.partitions": "1"}},
        workflow=[["read", "write"]],
        catalog=[read(ratePerSecond=500), write(tmp_path)],
    )
    job = cluster.submit(endless)
    wait_for(lambda: numbers(tmp_path), "a micro-batch is published")

    cluster.client.suspend(job)
    cluster.until(lambda replica: not replica.run(job).allocation, "its peer is free", PATIENCE_S)
    wait_for(lambda: not runs_a_query(worker), "the query has ended")
    before = len(numbers(tmp_path))
    cluster.client.resume(job)
    wait_for(lambda: len(numbers(tmp_path)) > before, "it goes on")

    cluster.client.drain(job)
    cluster.await_completed(job, PATIENCE_S)
    wait_for(lambda: not runs_a_query(worker), "the query has ended")
    assert len(numbers(tmp_path)) > before


def spark_jobs(port: int, status: str) -> list[Any]:
    """Spark's own jobs of a status, by its user interface; none while that does not answer."""
    url = f"http://127.0.0.1:{port}/api/v1/applications"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            (application,) = json.load(answer)
        url = f"{url}/{application['id']}/jobs?status={status}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: list[Any] = json.load(answer)
    except (OSError, ValueError):
        return []
    return found


@pytest.mark.slow
def test_a_job_that_is_killed_in_the_stage_of_a_window_has_its_spark_job_cancelled(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Spark answers to the end, so it was not killed."""
    port = free_port()
    conf = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(TASKS),
    }
    sums = {"name": "sums", "type": "reduce", "groupByKey": "k", "fluxPolicy": "continue"}
    windowed = manifest(
        "windowed",
        spark={"master": "local[1]", "sparkConf": conf},
        workflow=[["read", "sums"], ["sums", "write"]],
        catalog=[read(segments=100), sums, write(tmp_path)],
        windows=[{"id": "totals", "task": "sums", "type": "global", "engine": "spark",
                  "aggregation": ["sum", "n"]}],
        triggers=[{"windowId": "totals", "type": "watermark", "refinement": "accumulating",
                   "emit": f"{MODULE}:summed"}],
    )  # fmt: skip
    job = cluster.submit(windowed)
    (running,) = wait_for(lambda: spark_jobs(port, "running"), "Spark aggregates the window")
    assert running["numTasks"] >= TASKS

    cluster.client.kill(job)

    cluster.until(lambda replica: job in replica.killed_jobs, "the job is killed", PATIENCE_S)
    (cancelled,) = wait_for(lambda: spark_jobs(port, "failed"), "Spark's job has ended")
    assert cancelled["jobId"] == running["jobId"]
    assert cancelled["numCompletedTasks"] < TASKS
    assert spark_jobs(port, "running") == []
    assert numbers(tmp_path) == []
