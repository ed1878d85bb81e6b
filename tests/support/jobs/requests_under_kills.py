"""Requests while workers are killed and stopped, and the proof that each was taken exactly once:
`python -m tests.support.jobs.requests_under_kills --requests 100000 --kills 50 --clients 32`.

Clients send a request again, under its id, until it is answered. Whatever was answered is in the
output when the answer comes, and in the end every segment is there once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.jobs.exactly_once import (
    MODULE,
    PEERS,
    READY_WAIT_S,
    SESSION_TIMEOUT_S,
    Faults,
    compare,
    faulted,
)
from tests.support.servers.cluster import Cluster
from tests.support.servers.ports import free_port

from onyx.client.appender import Appender, NotYetTaken
from onyx.client.workers import addresses_of
from onyx.log.server.process import ZooKeeperServer

CLIENTS = 4
SEGMENTS_OF_REQUEST = 3


def manifest(folder: Path) -> dict[str, Any]:
    """From requests to files, over two functions, exactly once."""
    out = {"path": str(folder / "out"), "format": "jsonl", "rollSeconds": 0.5}
    options = {"partitions": 4, "partitionKey": "key"}
    return {
        "apiVersion": "onyx.dev/v1alpha1",
        "kind": "OnyxJob",
        "metadata": {"name": "under-kills"},
        "spec": {
            "guarantee": "exactly-once",
            "workflow": [["in", "one"], ["one", "two"], ["two", "out"]],
            "catalog": [
                {"name": "in", "type": "input", "plugin": "requests", "maxPeers": 2,
                 "options": options},
                {"name": "one", "type": "function", "fn": "windows_job:same"},
                {"name": "two", "type": "function", "fn": "windows_job:same"},
                {"name": "out", "type": "output", "plugin": "files", "maxPeers": 2, "options": out},
            ],
        },
    }  # fmt: skip


@dataclass
class Clients:
    """Threads that send requests until each is answered."""

    appender: Appender
    requests: int
    count: int = CLIENTS
    answered: list[int] = field(default_factory=list)
    sent_again: int = 0
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers = iter(range(self.requests))
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send_all) for _ in range(self.count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _send_all(self) -> None:
        try:
            while (number := self._next()) is not None:
                self._send(number)
                self.answered.append(number)
        except Exception as error:
            self.errors.append(error)

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def _send(self, number: int) -> None:
        ack = ("ack", "journal")[number % 2]
        while True:
            try:
                self.appender.append(list(segments(number)), ack, f"r{number}", timeout_s=10.0)
                return
            except NotYetTaken:
                self.sent_again += 1


def segments(number: int) -> Iterator[dict[str, Any]]:
    """Of one request: it falls into several partitions."""
    first = number * SEGMENTS_OF_REQUEST
    for n in range(first, first + SEGMENTS_OF_REQUEST):
        yield {"n": n, "key": n % 101}


def written(folder: Path) -> Counter[int]:
    lines = itertools.chain.from_iterable(
        part.read_text("utf-8").splitlines() for part in sorted((folder / "out").glob("*.jsonl"))
    )
    return Counter(json.loads(line)["n"] for line in lines)


def run(
    cluster: Cluster, folder: Path, requests: int, faults: Faults, count: int = CLIENTS
) -> Clients:
    """Send requests through all faults.

    Args:
        count: clients that send at once.

    Raises:
        AssertionError: something is lost or doubled, or the job does not recover.
    """
    chance = random.Random(faults.seed)
    workers = cluster.start_workers(3, PEERS)
    job = cluster.submit(manifest(folder))
    cluster.await_ready(job, READY_WAIT_S)
    with Appender(lambda: addresses_of(cluster.replica), "under-kills", "in") as appender:
        clients = Clients(appender, requests, count)
        clients.start()
        faulted(cluster, job, workers, faults, chance)
        clients.join()
        acked = [number for number in clients.answered if number % 2 == 0]
        there = written(folder)
        early = [n for number in acked for n in (each["n"] for each in segments(number))]
        assert not set(early) - set(there), "an answer came before its segments were in the output"
    cluster.client.drain(job)
    cluster.await_completed(job, READY_WAIT_S)
    compare(written(folder), Counter(range(requests * SEGMENTS_OF_REQUEST)))
    return clients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--stops", type=int, default=2)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    faults = Faults(
        given.kills,
        given.stops,
        given.seed,
        rescale=False,
        reported=lambda text: print(text, flush=True),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            ZooKeeperServer(folder / "zookeeper", port=free_port()) as server,
            Cluster(server.address, folder, MODULE, SESSION_TIMEOUT_S) as cluster,
        ):
            clients = run(cluster, folder, given.requests, faults, given.clients)
    print(
        f"{given.requests:,} requests, each taken once; {clients.sent_again} had to be sent again"
    )


if __name__ == "__main__":
    main()
