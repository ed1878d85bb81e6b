"""A window by Spark whose worker is killed in the middle of a stage: real processes and Spark."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import MODULE, measured
from tests.support.servers.cluster import Cluster

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server
RANGE_MS = 8_000
PEERS = 4
STAGE_WAIT_S = 200.0
END_WAIT_S = 400.0


def manifest(folder: Path, segments: int) -> dict[str, Any]:
    read = {"segments": segments, "fn": "windows_job:measured", "partitions": 2}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "by-spark"},
        "spec": {
            "guarantee": "exactly-once",
            "spark": {"master": "local[1]", "sparkConf": {"spark.sql.shuffle.partitions": "2"}},
            "workflow": [["read", "sum"], ["sum", "write"]],
            "catalog": [
                {"name": "read", "type": "input", "plugin": "generator", "batchSize": 500,
                 "watermarkKey": "time", "allowedDisorder": [1, "second"], "options": read},
                {"name": "sum", "type": "reduce", "groupByKey": "key", "minPeers": 1,
                 "fluxPolicy": "continue"},
                {"name": "write", "type": "output", "plugin": "files",
                 "options": {"path": str(folder / "out"), "format": "jsonl"}},
            ],
            "windows": [
                {"id": "sums", "task": "sum", "engine": "spark", "type": "fixed",
                 "aggregation": ["sum", "v"], "windowKey": "time",
                 "range": [RANGE_MS, "milliseconds"]}
            ],
            "triggers": [
                {"windowId": "sums", "type": "watermark", "postEvictor": ["all"],
                 "emit": "windows_job:emit_sum"}
            ],
        },
    }  # fmt: skip


def wanted(segments: int) -> Counter[tuple[int, int, int]]:
    sums: Counter[tuple[int, int]] = Counter()
    for segment in map(measured, range(segments)):
        sums[segment["key"], segment["time"] // RANGE_MS * RANGE_MS] += segment["v"]
    return Counter((key, max(lower, 0), total) for (key, lower), total in sums.items())


def found(folder: Path) -> Counter[tuple[int, int, int]]:
    rows = [
        json.loads(line)
        for file in (folder / "out").glob("part-*")
        for line in file.read_text().splitlines()
    ]
    return Counter((row["key"], max(row["from"], 0), row["sum"]) for row in rows)


def await_stage(folder: Path) -> None:
    """Until Spark writes a result."""
    until_s = time.monotonic() + STAGE_WAIT_S
    while not any(folder.rglob("r-*/_temporary")):
        assert time.monotonic() < until_s, "no stage has begun"
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("segments", [6_000, 20_000])
def test_windows_are_exact_when_the_worker_dies_in_the_middle_of_a_stage(
    zookeeper: ZooKeeperServer, tmp_path: Path, segments: int
) -> None:
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        worker = cluster.start_worker(PEERS)
        job = cluster.submit(manifest(tmp_path, segments))
        cluster.await_ready(job)
        await_stage(tmp_path)
        worker.kill()
        cluster.start_worker(PEERS)
        cluster.await_completed(job, END_WAIT_S)
    assert found(tmp_path) == wanted(segments)
