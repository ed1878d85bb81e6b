"""Workers that die or sleep beyond their session while a job's data is in an object store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster, Worker
from tests.support.servers.object_stores import ObjectStore

from onyx.ids import GroupId, JobId, TaskName

pytestmark = pytest.mark.server

MakeCluster = Callable[..., Cluster]
FILES, RECORDS, GATE = 3, 4_000, 1_500


def manifest(store: ObjectStore, gate: Path) -> dict[str, Any]:
    """Objects to objects, behind a gate that decides how much of each may be read."""
    read = {"path": f"{store.url}/in/*.txt", "gate": str(gate)}
    read |= {"recordNumber": "number", "fileName": "file"}
    write = {"path": f"{store.url}/out", "rollSeconds": 0.5}
    work = {"fn": "chaos_job:parse", "params": ["pause"], "options": {"pause": 0.004}}
    catalog = [
        {"name": "read", "type": "input", "plugin": "chaos_job:gated_files", "maxPeers": 2,
         "options": read},
        {"name": "parse", "type": "function", **work},
        {"name": "write", "type": "output", "plugin": "files", "minPeers": 2, "maxPeers": 2,
         "options": write},
    ]  # fmt: skip
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "objects"},
        "spec": {
            "workflow": [["read", "parse"], ["parse", "write"]],
            "catalog": [{**entry, "batchSize": 100} for entry in catalog],
        },
    }


def open_gate(gate: Path, records: int) -> None:
    """At once: a worker that reads the file meanwhile finds what was there before."""
    following = gate.with_suffix(".next")
    following.write_text(str(records))
    following.rename(gate)


def put_input(store: ObjectStore, gate: Path) -> set[int]:
    for file in range(FILES):
        values = range(file * RECORDS, (file + 1) * RECORDS)
        lines = "".join(json.dumps({"value": value}) + "\n" for value in values)
        store.put(f"in/{file}.txt", lines)
    open_gate(gate, GATE)
    return set(range(FILES * RECORDS))


def written(store: ObjectStore) -> list[int]:
    """All values in visible parts, each of which must be whole."""
    parts = [store.get(key) for key in store.keys("out/part-")]
    return [row["value"] for part in parts for row in msgspec.json.Decoder().decode_lines(part)]


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"still not: {what}"
        time.sleep(0.05)


def stop_while_writing(cluster: Cluster, store: ObjectStore, job: JobId) -> tuple[Worker, GroupId]:
    """Stop a process that has written, until the cluster has declared it dead."""
    wait_for(lambda: store.keys("out/part-"), "something has been written")
    worker = cluster.worker_of(cluster.replica.run(job).allocation[TaskName("write")][0])
    group = cluster.group_of(worker)
    worker.stop()
    cluster.await_gone([group])
    return worker, group


def staged_by(store: ObjectStore, group: GroupId) -> list[str]:
    return [key for key in store.keys("out/.staging/") if f"/{group}." in key]


@pytest.mark.short(1)
def test_killed_workers_lose_nothing(
    make_cluster: MakeCluster, tmp_path: Path, store: ObjectStore
) -> None:
    """[work, KILL, work, KILL, work]"""
    gate = tmp_path / "gate"
    expected = put_input(store, gate)
    with make_cluster() as cluster:
        cluster.start_workers(3, peers=4)
        job = cluster.submit(manifest(store, gate))
        cluster.await_ready(job)
        for limit in (GATE, RECORDS):
            open_gate(gate, limit)
            wait_for(lambda: store.keys("out/part-"), "something has been written")
            victim = cluster.worker_of(cluster.replica.run(job).allocation[TaskName("write")][0])
            group = cluster.group_of(victim)
            victim.kill()
            cluster.start_workers(1, peers=4)
            cluster.await_gone([group])
        cluster.await_completed(job)
        wait_for(lambda: not store.keys("out/.staging/"), "marks and notes are removed")
    assert set(written(store)) == expected


@pytest.mark.slow
def test_a_zombie_makes_nothing_visible(
    make_cluster: MakeCluster, tmp_path: Path, store: ObjectStore
) -> None:
    """[work, STOP until declared dead, others complete, CONTINUE]"""
    gate = tmp_path / "gate"
    expected = put_input(store, gate)
    with make_cluster() as cluster:
        cluster.start_workers(2, peers=6)
        job = cluster.submit(manifest(store, gate))
        cluster.await_ready(job)
        zombie, old = stop_while_writing(cluster, store, job)
        open_gate(gate, RECORDS)
        cluster.await_completed(job)
        assert staged_by(store, old) == []
        before = store.keys("out/part-")
        zombie.resume()
        cluster.await_members([zombie], peers=6)
        assert cluster.group_of(zombie) != old
        zombie.terminate()
        assert zombie.wait() == 0
    assert store.keys("out/part-") == before
    assert set(written(store)) == expected
