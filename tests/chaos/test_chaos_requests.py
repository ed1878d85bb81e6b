"""Requests while workers are killed and stopped: each is taken once, and no answer is untrue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.jobs.exactly_once import SESSION_TIMEOUT_S, Faults
from tests.support.jobs.requests_under_kills import KINDS, MODULE, run
from tests.support.servers.cluster import Cluster

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server
FEW = Faults(kills=4, stops=1, seed=5, rescale=False, pause_max_s=0.5)
RESCALED = Faults(kills=3, stops=1, seed=7, pause_max_s=0.3)
STORM = Faults(kills=6, stops=2, seed=11, pause_max_s=0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requests", "clients", "faults", "upgrades"),
    [(1_000, 8, FEW, 1), pytest.param(2_000, 24, STORM, 2, marks=pytest.mark.slow)],
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("through", "chained"),
    [("processor", False), ("join", False), ("loop", False), ("state", True)],
    ids=["processor", "join", "loop", "chain"],
)
def test_an_output_agrees_with_what_clients_learned_whatever_their_requests_go_through(
    zookeeper: ZooKeeperServer, tmp_path: Path, through: str, chained: bool
) -> None:
    with Cluster(zookeeper.address, tmp_path, MODULE, SESSION_TIMEOUT_S) as cluster:
        # Two jobs do not fit on two workers.
        faults = replace(RESCALED, sizes=(4, 5, 3)) if chained else RESCALED
        run(cluster, tmp_path, 1_000, faults, 12, through=KINDS[through], chained=chained)
