"""Clusters for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.servers.cluster import Cluster

from onyx.log.server.process import ZooKeeperServer

MODULES = Path(__file__).with_name("chaos_job.py")

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def make_cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> MakeCluster:
    """A cluster without workers, at the shared server unless an address is given."""

    def make(address: str = "", session_timeout_s: float = 2.0) -> Cluster:
        return Cluster(address or zookeeper.address, tmp_path, MODULES, session_timeout_s)

    return make
