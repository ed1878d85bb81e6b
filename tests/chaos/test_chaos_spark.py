"""What runs on Spark writes each row once, whichever of its processes is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.servers.cluster import Cluster
from tests.support.spark.fault_kinds import prepared
from tests.support.spark.faults import SESSION_TIMEOUT_S, Faults, World

from onyx.log.server.process import ZooKeeperServer

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("own_jvms")]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_jobs_and_stages_on_spark_survive_the_death_of_their_processes(
    zookeeper: ZooKeeperServer, tmp_path: Path, kills: int
) -> None:
    faults = Faults(kills=kills, seed=3, kinds=("job", "stage"))
    with Cluster(zookeeper.address, tmp_path, prepared(tmp_path), SESSION_TIMEOUT_S) as cluster:
        world = World(cluster, tmp_path, faults)
        world.run()
    assert world.made.total() == kills
