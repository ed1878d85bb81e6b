"""From a queue to files, while workers that read are killed and the server of the queue dies."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster
from tests.support.servers.queue_servers import RedisServer

from onyx.ids import TaskName
from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server

MODULE = Path(__file__).with_name("queue_job.py")
MESSAGES, AT_ONCE = 6_000, 200


def manifest(server: RedisServer, stream: str, folder: Path, mode: str) -> dict[str, Any]:
    read = {"server": server.address, "stream": stream, "format": "json", "mode": mode}
    read |= {"partitions": 2, "prefetch": 50}
    read |= {"onFailure": "source"} if mode == "native" else {}
    fn = "unsteady" if mode == "native" else "same"
    catalog = [
        {"name": "read", "type": "input", "plugin": "redis", "maxPeers": 2, "options": read},
        {"name": "work", "type": "function", "fn": f"queue_job:{fn}"},
        {"name": "write", "type": "output", "plugin": "files",
         "options": {"path": str(folder), "rollSeconds": 0.3}},
    ]  # fmt: skip
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": f"queue-{mode}"},
        "spec": {
            "guarantee": "exactly-once" if mode == "journal" else "at-least-once",
            "workflow": [["read", "work"], ["work", "write"]],
            "catalog": [{**entry, "batchSize": 100} for entry in catalog],
        },
    }


def fill(server: RedisServer, stream: str, first: int) -> None:
    client = redis.Redis(port=server.port)
    pipeline = client.pipeline(transaction=False)
    for n in range(first, first + AT_ONCE):
        pipeline.xadd(stream, {"value": json.dumps({"n": n})})
    pipeline.execute()


def written(folder: Path) -> Counter[int]:
    return Counter(
        json.loads(line)["n"]
        for part in folder.rglob("*.jsonl")
        for line in part.read_text().splitlines()
    )


def left_pending(server: RedisServer, stream: str, group: str) -> set[int]:
    """What the queue still waits for."""
    client = redis.Redis(port=server.port)
    pending = client.xpending_range(stream, group, "-", "+", 2 * MESSAGES)
    ids = [each["message_id"] for each in pending]
    return {json.loads(client.xrange(stream, id, id)[0][1][b"value"])["n"] for id in ids}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["journal", pytest.param("native", marks=pytest.mark.slow)])
def test_every_message_is_there_or_was_refused(
    zookeeper: ZooKeeperServer, redis_server: RedisServer, tmp_path: Path, mode: str
) -> None:
    stream, out = f"chaos-{mode}", tmp_path / "out"
    pause = threading.Event()
    with Cluster(zookeeper.address, tmp_path, MODULE) as cluster:
        cluster.start_workers(3, peers=2)
        job = cluster.submit(manifest(redis_server, stream, out, mode))
        cluster.await_ready(job)
        for number, first in enumerate(range(0, MESSAGES, AT_ONCE)):
            fill(redis_server, stream, first)
            if number in (8, 18):
                readers = cluster.replica.run(job).allocation[TaskName("read")]
                cluster.worker_of(readers[0]).kill()
                cluster.start_workers(1, peers=2)
                cluster.await_ready(job)
            elif number == 24:
                redis_server.kill()
                redis_server.start()
            pause.wait(0.02)
        refused = set(range(0, MESSAGES, 100)) if mode == "native" else set()
        for _ in range(int(WAIT_S / 0.2)):
            if len(written(out)) >= MESSAGES - len(refused):
                break
            pause.wait(0.2)
        cluster.client.drain(job)
        cluster.await_completed(job)
    found = written(out)
    assert set(found) == set(range(MESSAGES)) - refused
    if mode == "journal":
        assert max(found.values()) == 1
    assert left_pending(redis_server, stream, f"onyx.queue-{mode}.read") == refused
