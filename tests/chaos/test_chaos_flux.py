"""What becomes of a grouped state when a peer goes: by the flux policy of its task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import (
    MODULE,
    PARTITIONS,
    Gate,
    compare,
    expected,
    manifest,
    written,
)
from tests.support.servers.cluster import Cluster

from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer
from onyx.replica.state import Replica

pytestmark = pytest.mark.server

SEGMENTS = 40_000


def windowed(folder: Path, policy: str, **peers: int) -> dict[str, Any]:
    job = manifest(folder, SEGMENTS)
    counts = {"read": 1, "pass": 1, "sum": 2, "write": 2}
    for entry in job["spec"]["catalog"]:
        for key in ("minPeers", "maxPeers"):
            entry.pop(key, None)
        entry["nPeers"] = counts[entry["name"]]
        if entry["name"] == "sum":
            entry["fluxPolicy"] = policy
            if policy == "continue":
                del entry["nPeers"]
                entry |= {"minPeers": 1, "maxPeers": 2}
    return job


def half_way(cluster: Cluster, folder: Path, policy: str) -> tuple[JobId, Gate]:
    gate = Gate(folder / "gate", SEGMENTS // PARTITIONS)
    job = cluster.submit(windowed(folder, policy))
    cluster.await_ready(job)
    gate.open(0.5)
    return job, gate


def kill_one_with_state(cluster: Cluster, job: JobId) -> None:
    worker = cluster.worker_of(cluster.replica.run(job).allocation["sum"][0])  # type: ignore[index]
    dead = cluster.group_of(worker)
    worker.kill()
    cluster.await_gone([dead])


@pytest.mark.parametrize(
    ("policy", "peers"), [("recover", 4), pytest.param("continue", 6, marks=pytest.mark.slow)]
)
def test_a_job_goes_on_with_the_same_state(
    policy: str, peers: int, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """With `recover` too few are left here for the tasks that need a fixed number of peers."""
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        cluster.start_workers(2, peers)
        job, gate = half_way(cluster, tmp_path, policy)
        kill_one_with_state(cluster, job)
        if policy == "recover":
            cluster.until(lambda replica: not replica.run(job).allocation, "it waits")
            cluster.start_workers(1, peers)
        cluster.await_ready(job)
        gate.open(1)
        cluster.await_completed(job)
    compare(written(tmp_path), expected(SEGMENTS))


def recovering(folder: Path) -> dict[str, Any]:
    """The guide's own example: `recover` with `minPeers: 2`; the other tasks need one peer each."""
    job = manifest(folder, SEGMENTS)
    for entry in job["spec"]["catalog"]:
        if entry["name"] == "sum":
            entry |= {"fluxPolicy": "recover", "minPeers": 2}
        else:
            entry |= {"minPeers": 1, "maxPeers": 1}
    return job


def peers_of_sum(replica: Replica, job: JobId) -> int:
    return len(replica.run(job).allocation.get("sum", ()))  # type: ignore[call-overload]


def test_without_a_spare_peer_the_key_groups_of_a_lost_one_move_to_those_left(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """Each fault hits while there is state and segments are under way; nothing is lost or counted
    twice, whether a peer is lost, lost again, or comes back."""
    gate = Gate(tmp_path / "gate", SEGMENTS // PARTITIONS)
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        cluster.start_workers(5, peers=1)
        job = cluster.submit(recovering(tmp_path))
        cluster.await_ready(job)
        gate.open(0.25)
        kill_one_with_state(cluster, job)
        cluster.until(lambda replica: peers_of_sum(replica, job) == 1, "it goes on with one")
        cluster.await_ready(job)
        gate.open(0.5)
        cluster.start_workers(1, peers=1)
        cluster.until(lambda replica: peers_of_sum(replica, job) == 2, "it has two again")
        cluster.await_ready(job)
        gate.open(0.75)
        kill_one_with_state(cluster, job)
        cluster.until(lambda replica: peers_of_sum(replica, job) == 1, "and one once more")
        cluster.await_ready(job)
        gate.open(1)
        cluster.await_completed(job)
    compare(written(tmp_path), expected(SEGMENTS))


@pytest.mark.slow
def test_a_job_is_killed_with_its_state(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        cluster.start_workers(2, peers=4)
        job, _ = half_way(cluster, tmp_path, "kill")
        kill_one_with_state(cluster, job)
        cluster.until(lambda replica: job in replica.killed_jobs, "it is killed")
