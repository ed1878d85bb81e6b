"""Windows under kills, stops beyond the session and rescaling come out exactly right."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.jobs.exactly_once import MODULE, Faults, run
from tests.support.servers.cluster import Cluster

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    "columns",
    [pytest.param(False, id="dicts"), pytest.param(True, id="columns", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    ("kills", "segments"), [(3, 30_000), pytest.param(10, 100_000, marks=pytest.mark.slow)]
)
def test_windows_are_exactly_right_after_kills_and_a_rescaling(
    zookeeper: ZooKeeperServer, tmp_path: Path, kills: int, segments: int, columns: bool
) -> None:
    faults = Faults(kills=kills, stops=1, seed=7, pause_max_s=0.5)
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        run(cluster, tmp_path, segments, faults, columns)
