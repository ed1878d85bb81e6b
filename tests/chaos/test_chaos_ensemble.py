"""Three ZooKeeper servers: the leader may die at any time, and the job does not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.chaos_files import ChaosFiles
from tests.support.cluster import Cluster
from tests.support.ensemble import RunningEnsemble

pytestmark = pytest.mark.server

MakeCluster = Callable[..., Cluster]


def test_a_job_goes_on_when_the_leader_of_zookeeper_dies_twice(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    files = ChaosFiles(tmp_path, files=4, records=15_000)
    with (
        RunningEnsemble(tmp_path / "zookeeper") as ensemble,
        make_cluster(ensemble.address, session_timeout_s=6.0) as cluster,
    ):
        cluster.start_workers(3, peers=3)
        job = cluster.submit(files.manifest())
        version = cluster.await_ready(job)
        groups = cluster.replica.groups

        for released in 5_000, 10_000:
            files.open_gate(released)
            files.await_some()
            leader = ensemble.leader()
            leader.kill()
            files.await_reflected(released)
            ensemble.await_ready([each for each in ensemble.servers if each is not leader])
            leader.start()
            ensemble.await_ready(ensemble.servers)

        assert cluster.replica.allocation_version[job] == version
        files.open_gate()
        cluster.await_completed(job)
        assert cluster.replica.groups == groups
        assert cluster.entries_named("group-leave-cluster") == []
        assert [each.stop() for each in ensemble.servers] == [0, 0, 0]

    files.check_complete()
