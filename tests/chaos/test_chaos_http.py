"""Requests under kills and stops beyond the session, to a server that restarts, refuses for a while
and loses answers: what it takes by their keys is there exactly once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import MODULE, PARTITIONS, Faults, Gate, compare, disturb
from tests.support.servers.cluster import Cluster
from tests.support.servers.http_endpoint import HttpEndpoint, Received, Reply

from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server

AWAY_S = 0.5


@pytest.fixture
def endpoint() -> Iterator[HttpEndpoint]:
    endpoint = HttpEndpoint()
    chance = random.Random(11)

    def moody(request: Received) -> Reply | None:
        return chance.choices(
            [None, Reply(503), Reply(429, {"Retry-After": "0"}), Reply(how="close", taken=True),
             Reply(500, taken=True), Reply(how="reset", taken=False)],
            [90, 2, 2, 2, 2, 2],
        )[0]  # fmt: skip

    endpoint.rule = moody
    yield endpoint
    endpoint.stop()


def manifest(
    folder: Path, endpoint: HttpEndpoint, guarantee: str, segments: int, **options: Any
) -> dict[str, Any]:
    read = {"segments": segments, "partitions": PARTITIONS, "gate": str(folder / "gate")}
    write = {"url": endpoint.url, "retrySecondsMax": 0.5, **options}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "requests"},
        "spec": {
            "guarantee": guarantee,
            "workflow": [["read", "write"]],
            "catalog": [
                {"name": "read", "type": "input", "plugin": "windows_job:gated_generator",
                 "batchSize": 200, "maxPeers": 2, "options": read},
                {"name": "write", "type": "output", "plugin": "http", "batchSize": 200,
                 "maxPeers": 3, "options": write},
            ],
        },
    }  # fmt: skip


def restart(endpoint: HttpEndpoint) -> None:
    endpoint.stop()
    threading.Event().wait(AWAY_S)
    endpoint.start()


def check(
    zookeeper: ZooKeeperServer,
    folder: Path,
    endpoint: HttpEndpoint,
    job: dict[str, Any],
    segments: int,
    faults: Faults,
) -> None:
    gate = Gate(folder / "gate", segments // PARTITIONS)
    with Cluster(zookeeper.address, folder, MODULE) as cluster:
        disturb(cluster, job, gate, faults)
    compare(endpoint.numbers(), Counter(range(segments)))
    assert len(endpoint.received) > len(endpoint.taken), "something was sent again"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", pytest.param("arrow", marks=pytest.mark.slow)])
def test_committed_requests_are_taken_exactly_once(
    zookeeper: ZooKeeperServer, tmp_path: Path, endpoint: HttpEndpoint, form: str
) -> None:
    segments = 40_000
    options = {"format": form, "requestSegments": 50, "rollSeconds": 0.2, "rollSegments": 2_000}
    job = manifest(tmp_path, endpoint, "exactly-once", segments, **options)
    faults = Faults(
        kills=4, stops=1, seed=7, pause_max_s=0.5, besides=lambda number: restart(endpoint)
    )
    check(zookeeper, tmp_path, endpoint, job, segments, faults)


@pytest.mark.slow
def test_requests_with_keys_of_the_segments_are_taken_once_although_they_are_replayed(
    zookeeper: ZooKeeperServer, tmp_path: Path, endpoint: HttpEndpoint
) -> None:
    segments = 8_000
    job = manifest(tmp_path, endpoint, "at-least-once", segments, idempotencyKey="n")
    faults = Faults(
        kills=3, stops=1, seed=3, rescale=False, pause_max_s=0.5,
        besides=lambda number: restart(endpoint),
    )  # fmt: skip
    check(zookeeper, tmp_path, endpoint, job, segments, faults)
