"""Chained jobs whose processes die: each row is written once at the end of the chain."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.jobs.chaos_files import wait_until
from tests.support.jobs.yaml_jobs import manifest
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster

from onyx.errors import UserError
from onyx.ids import JobId, TaskName
from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server
MODULE = Path(__file__).with_name("chaos_job.py")
PEERS = 4
SEGMENTS = 6_000
END_WAIT_S = 120.0
NOT_YET = "has not carried over the state"
FIRST = """
    guarantee: exactly-once
    workflow: [[make, write]]
    catalog:
      - {name: make, type: input, plugin: generator, maxPeers: 1, batchFormat: FORM,
         options: {segments: SEGMENTS, ratePerSecond: 400, partitions: 2}}
      - {name: write, type: output, plugin: files, minPeers: 2, maxPeers: 2, batchFormat: FORM,
         options: {path: PATH, format: FILES, rollSegments: 50, rollSeconds: 0.5}}
"""
SECOND = """
    guarantee: exactly-once
    workflow: [[follow, write]]
    catalog:
      - {name: follow, type: input, plugin: job, minPeers: 2, maxPeers: 2, batchFormat: FORM,
         options: {job: first, task: write, partitions: 3, pollSeconds: 0.2}}
      - {name: write, type: output, plugin: files, maxPeers: 1,
         options: {path: PATH, rollSegments: 500, rollSeconds: 0.5}}
"""


def job_of(text: str, name: str, path: Path, form: str, files: str = "jsonl") -> dict[str, Any]:
    texts = {"PATH": str(path), "FORM": form, "FILES": files, "SEGMENTS": str(SEGMENTS)}
    for key, value in texts.items():
        text = text.replace(key, value)
    return manifest(text, name)


def upgraded(cluster: Cluster, spec: dict[str, Any], old: JobId) -> JobId:
    """The new version, submitted as soon as the old one can be upgraded."""
    spec["spec"]["upgrade"] = {"from": old}
    until_s = time.monotonic() + WAIT_S
    while True:
        try:
            return cluster.submit(spec)
        except UserError as error:
            if NOT_YET not in str(error) or time.monotonic() > until_s:
                raise
            time.sleep(0.05)


def written(folder: Path) -> Counter[int]:
    lines = [line for part in folder.glob("part-*") for line in part.read_text().splitlines()]
    return Counter(json.loads(line)["n"] for line in lines)


def kill_peer_of(cluster: Cluster, job: JobId, task: str) -> None:
    peers = cluster.until(
        lambda replica: replica.run(job).allocation.get(TaskName(task)), f"{task} has peers"
    )
    cluster.worker_of(peers[0]).kill()
    cluster.start_worker(PEERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "files"),
    [("dicts", "jsonl"), pytest.param("arrow", "parquet", marks=pytest.mark.slow)],
)
def test_a_chain_writes_each_row_once_while_workers_die_and_both_jobs_are_upgraded(
    zookeeper: ZooKeeperServer, tmp_path: Path, form: str, files: str
) -> None:
    between, end = tmp_path / "between", tmp_path / "end"
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        cluster.start_workers(3, PEERS)
        second = cluster.submit(job_of(SECOND, "second", end, form))  # before there is a first
        first = cluster.submit(job_of(FIRST, "first", between, form, files))
        cluster.await_ready(first)
        cluster.await_ready(second)

        def has(rows: int) -> None:
            wait_until(lambda: written(end).total() >= rows, f"{rows} rows are through the chain")

        has(100)
        kill_peer_of(cluster, second, "follow")
        has(600)
        elsewhere = tmp_path / "elsewhere"  # the new version writes to another folder
        first = upgraded(cluster, job_of(FIRST, "first", elsewhere, form, files), first)
        kill_peer_of(cluster, first, "write")
        has(1_500)
        second = upgraded(cluster, job_of(SECOND, "second", end, form), second)
        has(2_000)
        kill_peer_of(cluster, second, "write")
        cluster.await_completed(first, END_WAIT_S)
        cluster.await_completed(second, END_WAIT_S)
    assert written(end) == Counter(range(SEGMENTS))
    parts = list(elsewhere.glob("part-*"))
    assert parts
    if files == "parquet":
        assert sum(pq.read_metadata(each).num_rows for each in parts) < SEGMENTS


@pytest.mark.slow
def test_a_job_whose_source_was_killed_says_so_and_goes_on_with_its_upgrade(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    between, end = tmp_path / "between", tmp_path / "end"
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        cluster.start_workers(1, 6)
        first = cluster.submit(job_of(FIRST, "first", between, "dicts"))
        second = cluster.submit(job_of(SECOND, "second", end, "dicts"))
        cluster.await_ready(second)
        wait_until(lambda: written(end).total() >= 100, "rows are through the chain")
        cluster.client.kill(first)

        def told() -> bool:
            return "first has published, and it was killed" in str(cluster.client.status(second))

        wait_until(told, "the obstacle is told")
        last = upgraded(cluster, job_of(FIRST, "first", between, "dicts"), first)
        cluster.await_completed(last, END_WAIT_S)
        cluster.await_completed(second, END_WAIT_S)
    assert written(end) == Counter(range(SEGMENTS))
