"""Requests while workers are killed and stopped: each is taken once, and no answer is untrue."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.jobs.exactly_once import MODULE, SESSION_TIMEOUT_S, Faults
from tests.support.jobs.requests_under_kills import run
from tests.support.servers.cluster import Cluster

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server


def test_each_request_is_taken_once_whatever_dies(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with Cluster(zookeeper.address, tmp_path, MODULE, SESSION_TIMEOUT_S) as cluster:
        faults = Faults(kills=4, stops=1, seed=5, rescale=False, pause_max_s=0.5)
        run(cluster, tmp_path, 1_500, faults)
