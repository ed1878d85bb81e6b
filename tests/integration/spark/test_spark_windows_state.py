"""A window by Spark, asked about from outside while peers add rows and real Spark aggregates them:
out of parts and results, when a worker has died, and when the job was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.support.jobs.yaml_jobs import job_of
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import onyx
from tests.support.spark.session import MASTER

from onyx import api
from onyx.client.window_view import WindowView
from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server
PATIENCE_S = 200.0
GROUPS, WIDTH = 8, 20_000
STEPS = """
def make(n):
    return {"n": n, "group": f"g{n % 8}"}


def row(event, window, trigger, state_event, state):
    return {"group": state_event["group_key"], "count": state}
"""
JOB = job_of("counting", {
    "guarantee": "exactly-once",
    "spark": {"master": MASTER, "sparkConf": {"spark.sql.shuffle.partitions": "1"}},
    "workflow": [["read", "count"], ["count", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "generator", "batchSize": 500,
         "maxPeers": 1, "watermarkKey": "n",
         "options": {"fn": "state_by_spark:make", "ratePerSecond": 4_000}},
        {"name": "count", "type": "reduce", "batchSize": 500, "groupByKey": "group",
         "minPeers": 2, "maxPeers": 2, "fluxPolicy": "continue"},
        {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 500,
         "maxPeers": 1},
    ],
    "windows": [
        {"id": "counts", "task": "count", "engine": "spark", "type": "fixed",
         "aggregation": "count", "windowKey": "n", "range": [WIDTH, "elements"]},
    ],
    "triggers": [{"windowId": "counts", "type": "watermark", "refinement": "accumulating",
                  "emit": "state_by_spark:row"}],
})  # fmt: skip


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Cluster]:
    modules = tmp_path / "modules" / "state_by_spark.py"
    modules.parent.mkdir()
    modules.write_text(STEPS)
    with Cluster(zookeeper.address, tmp_path, modules) as cluster:
        yield cluster


def states(view: WindowView) -> dict[tuple[str, int], int]:
    return {(each.group, int(each.lower)): each.state for each in view.extents}


def asked(cluster: Cluster, job: JobId, **select: Any) -> dict[tuple[str, int], int]:
    chosen = api.Selection(**select)
    found = states(api.window_state(cluster.settings, job, "counts", chosen, timeout_s=60))
    assert all(state <= WIDTH // GROUPS for state in found.values()), "no segment counts twice"
    return found


def until_full(cluster: Cluster, job: JobId, extents: int) -> dict[tuple[str, int], int]:
    for _ in range(int(PATIENCE_S)):
        found = asked(cluster, job)
        if sum(state == WIDTH // GROUPS for state in found.values()) >= extents * GROUPS:
            return found
        Event().wait(1.0)
    raise AssertionError(f"{extents} extents did not become full")


def await_result(folder: Path) -> None:
    for _ in range(int(PATIENCE_S)):
        if list(folder.glob("state/**/windows.spark/count/r-*/_list.json")):
            return
        Event().wait(1.0)
    raise AssertionError("Spark has aggregated nothing")


@pytest.mark.slow
def test_a_window_by_spark_tells_its_state_out_of_parts_and_results(
    cluster: Cluster, tmp_path: Path
) -> None:
    workers = cluster.start_workers(2, peers=5)
    job = cluster.submit(JOB)
    cluster.await_ready(job)
    before = until_full(cluster, job, 1)
    await_result(tmp_path)
    after = asked(cluster, job)
    assert all(after[each] >= state for each, state in before.items())
    only = asked(cluster, job, key="g3")
    assert {group for group, _ in only} == {"g3"}
    assert asked(cluster, job, prefix="g3", time_to=WIDTH) == {("g3", 0): WIDTH // GROUPS}

    told = asked(cluster, job)
    workers[0].kill()
    again = asked(cluster, job)
    assert all(again[each] >= state for each, state in told.items()), "no crash takes it back"
    until_full(cluster, job, 2)

    told = asked(cluster, job)
    cluster.client.kill(job)
    kept = asked(cluster, job)
    assert all(kept[each] >= state for each, state in told.items())
    pages = list(api.window_pages(cluster.settings, job, "counts", extents_max=3, durable=True))
    assert list(chain.from_iterable(map(states, pages))) == sorted(kept)

    reported = onyx(cluster.settings, "state", job, "counts", "--key", "g3", "--durable", "--json")
    assert reported.returncode == 0, reported.stderr
    lines = [json.loads(line) for line in reported.stdout.splitlines()]
    assert {"key": "g3", "from": 0, "to": WIDTH - 1, "state": WIDTH // GROUPS} in lines
