"""A job that keeps what it takes, and one that follows it, whose processes die: what is taken is
read once by both, and once more by whoever begins at the beginning.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.chaos_files import wait_until
from tests.support.jobs.yaml_jobs import manifest
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster

from onyx import api
from onyx.ids import JobId, TaskName
from onyx.journal.logs import KEPT
from onyx.log.server.process import ZooKeeperServer

pytestmark = [pytest.mark.server, pytest.mark.slow]
MODULE = Path(__file__).with_name("chaos_job.py")
PEERS = 4
END_WAIT_S = 120.0
TAKES = """
    guarantee: exactly-once
    workflow: [[take, write]]
    catalog:
      - {name: take, type: input, plugin: requests, minPeers: 2, maxPeers: 2,
         options: {partitions: 4, keepDays: 1}}
      - {name: write, type: output, plugin: files, maxPeers: 1,
         options: {path: PATH, rollSegments: 500, rollSeconds: 0.5}}
"""
FOLLOWS = """
    guarantee: exactly-once
    workflow: [[follow, write]]
    catalog:
      - {name: follow, type: input, plugin: job, minPeers: 2, maxPeers: 2, batchFormat: FORM,
         options: {job: takes, task: take, pollSeconds: 0.2}}
      - {name: write, type: output, plugin: files, maxPeers: 1, batchFormat: FORM,
         options: {path: PATH, rollSegments: 500, rollSeconds: 0.5}}
"""


def job_of(text: str, name: str, path: Path, form: str = "dicts") -> dict[str, Any]:
    return manifest(text.replace("PATH", str(path)).replace("FORM", form), name)


def written(folder: Path) -> Counter[int]:
    lines = [line for part in folder.glob("part-*") for line in part.read_text().splitlines()]
    return Counter(json.loads(line)["n"] for line in lines)


class Sender(threading.Thread):
    """Sends numbers until it is told to stop, each until it is in the journal."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self.sent = 0
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            appender = api.appender(self._cluster.settings, JobId("takes"))
            with appender:
                while not self.stop.is_set():
                    try:
                        id = f"number-{self.sent}"
                        appender.append({"n": self.sent}, "journal", id, timeout_s=5.0)
                    except Exception:
                        break  # its workers may be gone
                    self.sent += 1


def kill_peer_of(cluster: Cluster, job: JobId, task: str) -> None:
    peers = cluster.until(
        lambda replica: replica.run(job).allocation.get(TaskName(task)), f"{task} has peers"
    )
    cluster.worker_of(peers[0]).kill()
    cluster.start_worker(PEERS)


@pytest.mark.parametrize("form", ["dicts", "arrow"])
def test_what_is_taken_is_followed_once_while_workers_die_and_the_job_is_upgraded(
    zookeeper: ZooKeeperServer, tmp_path: Path, form: str
) -> None:
    own, end, late = (tmp_path / each for each in ("own", "end", "late"))
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        cluster.start_workers(3, PEERS)
        second = cluster.submit(job_of(FOLLOWS, "follows", end, form))  # before there is a first
        first = cluster.submit(job_of(TAKES, "takes", own))
        cluster.await_ready(first)
        cluster.await_ready(second)
        sender = Sender(cluster)
        sender.start()

        def has(rows: int) -> None:
            wait_until(lambda: written(end).total() >= rows, f"{rows} rows are followed")

        has(200)
        kill_peer_of(cluster, first, "take")
        has(sender.sent + 300)
        kill_peer_of(cluster, second, "follow")
        has(sender.sent + 300)
        first = cluster.submit_after(job_of(TAKES, "takes", own), first)
        has(sender.sent + 300)
        kill_peer_of(cluster, first, "take")
        second = cluster.submit_after(job_of(FOLLOWS, "follows", end, form), second)
        has(sender.sent + 1_500)
        folder = tmp_path / "state"
        wait_until(lambda: any(folder.glob(f"*/{KEPT}/*/*/*")), "something is kept")
        third = cluster.submit(job_of(FOLLOWS, "late", late, form))
        sender.stop.set()
        sender.join(WAIT_S)
        cluster.client.drain(first)
        for job in (first, second, third):
            cluster.await_completed(job, END_WAIT_S)
    taken = written(own)
    assert taken.keys() >= set(range(sender.sent))
    assert set(taken.values()) == {1}
    assert written(end) == taken
    assert written(late) == taken
