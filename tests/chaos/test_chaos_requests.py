"""Requests while workers are killed and stopped: each is taken once, and no answer is untrue."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.jobs.exactly_once import SESSION_TIMEOUT_S, Faults
from tests.support.jobs.requests_under_kills import MODULE, run
from tests.support.servers.cluster import Cluster

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server
FEW = Faults(kills=4, stops=1, seed=5, rescale=False, pause_max_s=0.5)
STORM = Faults(kills=12, stops=3, seed=11, pause_max_s=0.5)


@pytest.mark.parametrize(
    ("requests", "clients", "faults", "upgrades"),
    [(1_000, 8, FEW, 1), pytest.param(6_000, 24, STORM, 4, marks=pytest.mark.slow)],
    ids=["few faults", "a storm"],
)
def test_an_output_agrees_with_what_clients_learned_whatever_dies(
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    requests: int,
    clients: int,
    faults: Faults,
    upgrades: int,
) -> None:
    with Cluster(zookeeper.address, tmp_path, MODULE, SESSION_TIMEOUT_S) as cluster:
        run(cluster, tmp_path, requests, faults, clients, upgrades)
