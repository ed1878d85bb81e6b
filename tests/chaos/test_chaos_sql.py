"""Rows of a database under kills, stops beyond the session and crashes of the database itself: each
is there exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import MODULE, PARTITIONS, Faults, Gate, compare, disturb
from tests.support.servers.cluster import Cluster
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.sql_databases import Database, named

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server

SEGMENTS = 60_000
DATABASE_CRASHES = (2, 4)
"""Before which faults."""


def manifest(folder: Path, url: str) -> dict[str, Any]:
    read = {"segments": SEGMENTS, "partitions": PARTITIONS, "gate": str(folder / "gate")}
    write = {**named(url), "table": "numbers", "rollSeconds": 0.2, "rollSegments": 2_000}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "rows"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["read", "write"]],
            "catalog": [
                {"name": "read", "type": "input", "plugin": "windows_job:gated_generator",
                 "batchSize": 200, "maxPeers": 2, "options": read},
                {"name": "write", "type": "output", "plugin": "sql", "batchSize": 200,
                 "maxPeers": 3, "options": write},
            ],
        },
    }  # fmt: skip


@pytest.fixture
def server():
    server = PostgreSQL()
    yield server
    server.close()


@pytest.mark.slow
def test_rows_are_in_postgresql_exactly_once_after_kills_of_workers_and_of_the_database(
    zookeeper: ZooKeeperServer, tmp_path: Path, server: PostgreSQL
) -> None:
    def crash_the_database(number: int) -> None:
        if number in DATABASE_CRASHES:
            server.stop()
            server.start()

    faults = Faults(kills=5, stops=1, seed=3, pause_max_s=0.5, besides=crash_the_database)
    database = Database(server.url())
    check(zookeeper, tmp_path, database, faults)


@pytest.mark.slow
def test_rows_are_in_sqlite_exactly_once_after_kills_of_workers(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    database = Database(f"sqlite:///{tmp_path / 'rows.db'}")
    check(zookeeper, tmp_path, database, Faults(kills=4, stops=0, seed=5, pause_max_s=0.5))


def check(zookeeper: ZooKeeperServer, folder: Path, database: Database, faults: Faults) -> None:
    database.run("CREATE TABLE numbers (n BIGINT)")
    gate = Gate(folder / "gate", SEGMENTS // PARTITIONS)
    with Cluster(zookeeper.address, folder, MODULE) as cluster:
        disturb(cluster, manifest(folder, database.url), gate, faults)
    compare(Counter(database.numbers()), Counter(range(SEGMENTS)))
    assert database.writers() == []
