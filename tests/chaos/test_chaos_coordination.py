"""Coordination under stress: ZooKeeper gone for a while, and workers that leave in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.jobs.chaos_files import ChaosFiles
from tests.support.servers.cluster import Cluster
from tests.support.servers.ports import free_port

from onyx.log.server.process import ZooKeeperServer
from onyx.replica.commands import GroupLeaveCluster, LeaveCluster

pytestmark = pytest.mark.server

MakeCluster = Callable[..., Cluster]

OUTAGE_S = 12.0


@pytest.mark.slow
def test_an_outage_of_zookeeper_reallocates_nothing(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=10_000)
    with (
        ZooKeeperServer(tmp_path / "zookeeper", port=free_port()) as server,
        make_cluster(server.address, session_timeout_s=6.0) as cluster,
    ):
        workers = cluster.start_workers(3, peers=3)
        job = cluster.submit(files.manifest())
        version = cluster.await_ready(job)
        groups = cluster.replica.groups
        files.open_gate(5_000)
        files.await_some()

        server.kill()
        threading.Event().wait(OUTAGE_S)
        server.start()

        files.await_reflected(5_000)
        assert cluster.replica.run(job).allocation_version == version
        files.open_gate()
        cluster.await_completed(job)
        assert all(worker.running for worker in workers)
        assert cluster.replica.groups == groups
        assert cluster.entries_named("group-leave-cluster") == []

    files.check_complete()


@pytest.mark.slow  # also `test_a_cluster_is_used_from_the_command_line`, with one worker
def test_a_worker_that_is_asked_to_end_leaves_by_the_log(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """Its session lasts for a minute: it says itself that it leaves."""
    files = ChaosFiles(tmp_path, files=4, records=10_000)
    with make_cluster(session_timeout_s=60.0) as cluster:
        workers = cluster.start_workers(3, peers=6)
        job = cluster.submit(files.manifest())
        cluster.await_ready(job)
        files.open_gate(5_000)
        files.await_some()

        for worker in workers[:2]:
            group = cluster.group_of(worker)
            peers = set(cluster.replica.groups_index[group])
            worker.terminate()
            assert worker.wait() == 0
            cluster.await_gone([group])
            own = [entry.command for entry in cluster.entries_by(group)]
            left = {command.id for command in own if isinstance(command, LeaveCluster)}
            assert left == peers
            assert own[-1] == GroupLeaveCluster(id=group)
            cluster.await_ready(job)

        files.await_reflected(5_000)
        files.open_gate()
        cluster.await_completed(job)

    files.check_complete()
