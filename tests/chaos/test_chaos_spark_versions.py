"""A Spark output over versions of a job and kills of its workers: with real processes and Spark."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import MODULE, PARTITIONS, Gate, measured
from tests.support.servers.cluster import Cluster

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server
SEGMENTS = 40_000
PEERS = 4
END_WAIT_S = 300.0


def version(folder: Path, guarantee: str, number: int, last: bool = False) -> dict[str, Any]:
    """The last one has another stage, and workers that know it."""
    read = {"segments": SEGMENTS, "fn": "windows_job:measured", "partitions": PARTITIONS}
    write = {
        "path": str(folder / "out"),
        "stage": "windows_job:totals_renamed" if last else "windows_job:totals",
        "master": "local[1]",
        "write": {"format": "json"},
        "rollSegments": 700,
        "rollSeconds": 0.5,
    }
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "versions"},
        "spec": {
            "guarantee": guarantee,
            "workflow": [["read", "write"]],
            "catalog": [
                {"name": "read", "type": "input", "plugin": "windows_job:gated_generator",
                 "batchSize": 100 + 10 * number, "maxPeers": 2,
                 "options": {**read, "gate": str(folder / "gate")}},
                {"name": "write", "type": "output", "plugin": "spark", "batchSize": 500,
                 "maxPeers": 2, "options": write},
            ],
        },
    }  # fmt: skip


def result(folder: Path) -> Counter[tuple[int, int]]:
    rows = [
        json.loads(line)
        for file in (folder / "out" / "result").glob("part-*.json")
        for line in file.read_text().splitlines()
    ]
    return Counter({(row["v"], row["time"]): row["count"] for row in rows})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guarantee", "versions"),
    [
        ("exactly-once", 2),
        pytest.param("exactly-once", 4, marks=pytest.mark.slow),
        pytest.param("at-least-once", 4, marks=pytest.mark.slow),
    ],
)
def test_a_result_holds_what_every_version_wrote_whoever_was_killed(
    zookeeper: ZooKeeperServer, tmp_path: Path, guarantee: str, versions: int
) -> None:
    """Each version runs for a while, is resumed from, and is forgotten; workers die in between."""
    gate = Gate(tmp_path / "gate", SEGMENTS // PARTITIONS)
    expected = Counter((each["v"], each["time"]) for each in map(measured, range(SEGMENTS)))
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        workers = cluster.start_workers(2, PEERS)
        job = cluster.submit(version(tmp_path, guarantee, 0))
        cluster.await_ready(job)
        for number in range(1, versions):
            gate.open(number / versions)
            await_parts(tmp_path / "out" / "parts" / job)
            if number % 2:  # dies with parts open and perhaps committed, just before the upgrade
                workers[0].kill()
                workers[0] = cluster.start_worker(PEERS)
            job = cluster.submit_after(
                version(tmp_path, guarantee, number, number == versions - 1), job
            )
            if not number % 2:  # or while it is taken over from
                workers[1].kill()
                workers[1] = cluster.start_worker(PEERS)
            cluster.await_members(workers, PEERS)  # one is there to vouch for the next version
            cluster.await_ready(job)
            cluster.client.gc()
        gate.open(1)
        cluster.await_completed(job, END_WAIT_S)
    found = result(tmp_path)
    assert found.keys() == expected.keys(), f"{len(found):,} of {len(expected):,} rows"
    if guarantee == "exactly-once":
        assert found == expected


def await_parts(folder: Path) -> None:
    until_s = time.monotonic() + 60
    while not list(folder.glob("part-*")):
        assert time.monotonic() < until_s, f"nothing was written to {folder}"
        time.sleep(0.05)
