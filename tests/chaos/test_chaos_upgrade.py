"""Versions of a job one after another, with real processes: they write exactly once."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import (
    END_WAIT_S,
    MODULE,
    PARTITIONS,
    PEERS,
    Gate,
    compare,
    expected,
    manifest,
    written,
)
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import onyx

from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server
SEGMENTS = 120_000
VERSIONS = 6


def version(folder: Path, number: int) -> dict[str, Any]:
    """Each has another batch size; every other one waits for segments that come late."""
    found = manifest(folder, SEGMENTS)
    for entry in found["spec"]["catalog"]:
        entry["batchSize"] = 300 + 50 * number
    if number % 2:
        found["spec"]["windows"][0]["allowedLateness"] = [1, "minute"]
    return found


@pytest.mark.slow
def test_windows_are_exactly_right_through_many_versions_of_a_job(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    chance = random.Random(3)
    gate = Gate(tmp_path / "gate", SEGMENTS // PARTITIONS)
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        workers = cluster.start_workers(3, PEERS)
        job = cluster.submit(version(tmp_path, 0))
        cluster.await_ready(job)
        for number in range(1, VERSIONS):
            gate.open(number / VERSIONS)
            time.sleep(chance.uniform(0, 1.5))
            old, job = job, cluster.submit_after(version(tmp_path, number), job)
            if number % 2:
                workers[0].kill()
                workers[0] = cluster.start_worker(PEERS)
            cluster.await_ready(job)
            assert old in cluster.replica.killed_jobs
        gate.open(1)
        cluster.await_completed(job, END_WAIT_S)
        compare(written(tmp_path), expected(SEGMENTS))


def test_a_plan_tells_what_is_carried_over_before_anything_happens(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    Gate(tmp_path / "gate", SEGMENTS // PARTITIONS)
    file = tmp_path / "next.json"
    changed = version(tmp_path, 1)
    changed["spec"]["windows"][0]["range"] = [5, "minutes"]
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        old = cluster.submit(version(tmp_path, 0))
        file.write_text(json.dumps(changed))
        reported = onyx(cluster.settings, "submit", file, "--upgrade", old, "--dry-run")
        assert reported.returncode == 2, reported.stderr
        assert "range was" in " ".join(reported.stdout.split())
        assert "spec.upgrade.windows.sums" in reported.stdout
        refused = onyx(cluster.settings, "submit", file, "--upgrade", old)
        assert refused.returncode == 1
        assert cluster.client.status(old).state == "waiting"
        cluster.start_workers(1, PEERS)
        changed["spec"]["upgrade"] = {"windows": {"sums": "initialize"}}
        file.write_text(json.dumps(changed))
        reported = onyx(cluster.settings, "submit", file, "--upgrade", old, "--dry-run", "--json")
        assert reported.returncode == 0, reported.stderr
        fates = {step["name"]: step["fate"] for step in json.loads(reported.stdout)["steps"]}
        assert (fates["sums"], fates["counts"]) == ("initialized", "carried over")
        job = onyx(cluster.settings, "submit", file, "--upgrade", old).stdout.strip()
        assert cluster.client.status(old).state == "killed"
        assert cluster.client.job(JobId(job)).upgrade is not None
