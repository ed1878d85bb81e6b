"""The story of a worker that is killed: in the logs of the others and in that of the cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.exactly_once import MODULE, PARTITIONS, Gate, manifest
from tests.support.servers.cluster import Cluster, Worker
from tests.support.servers.processes import onyx

from onyx.ids import TaskName
from onyx.log.server.process import ZooKeeperServer

pytestmark = pytest.mark.server

SEGMENTS = 8_000


def job(folder: Path) -> dict[str, Any]:
    """A task with state that goes on with fewer peers."""
    found = manifest(folder, SEGMENTS)
    found["spec"]["metadata"] = {"team": "north"}
    for entry in found["spec"]["catalog"]:
        entry["minPeers"], entry["maxPeers"] = 1, 2
        if entry["name"] == "sum":
            entry["fluxPolicy"] = "continue"
    return found


def lines(worker: Worker) -> list[dict[str, Any]]:
    found = (each for each in worker.log.read_text().splitlines() if each.startswith("{"))
    return [each for each in map(json.loads, found) if each.get("logger") == "onyx.jobs"]


def test_others_tell_what_a_killed_worker_ran_and_who_went_on_from_where(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with Cluster(zookeeper.address, tmp_path, MODULE, log_format="json") as cluster:
        first, second = cluster.start_workers(2, 6)
        gate = Gate(tmp_path / "gate", SEGMENTS // PARTITIONS)
        id = cluster.submit(job(tmp_path))
        cluster.await_ready(id)
        reads = cluster.worker_of(cluster.replica.run(id).allocation[TaskName("read")][0])
        first, second = (second, first) if reads is first else (first, second)
        gate.open(0.5)
        dead = cluster.group_of(second)
        second.kill()
        cluster.await_gone([dead])
        cluster.await_ready(id)
        gate.open(1)
        cluster.await_completed(id)
        printed = onyx(cluster.settings, "events", id[:8], "--json")

    ran = {each["task"]: each for each in lines(second) if each["what"] == "task-started"}
    assert ran, "the dead one had said what it ran"
    assert all(each["group"] == dead and each["job"] == id for each in ran.values())
    assert {each["metadata.team"] for each in ran.values()} == {"north"}
    taken = [each for each in (*lines(first), *lines(second)) if each["what"] == "job-taken"]
    assert {(each["job_name"], each["metadata.team"], each["job"]) for each in taken} == {
        (manifest(tmp_path, SEGMENTS)["metadata"]["name"], "north", id)
    }
    said = [each for each in lines(first) if each.get("job", id) == id]
    assert [each["worker"] for each in said if each["what"] == "worker-lost"] == [dead]
    (moved,) = [each for each in said if each["what"] == "job-reallocated"]
    assert f"because worker {dead} is gone: " in moved["event"]
    after = said[said.index(moved) :]
    assert {"state-taken-over", "input-begins", "job-runs"} <= {each["what"] for each in after}
    assert said[-1]["what"] == "task-stopped"

    assert printed.returncode == 0, printed.stderr
    events = [json.loads(each) for each in printed.stdout.splitlines()]
    kinds = [each["what"] for each in events]
    assert kinds[0] == "job-submitted"
    assert kinds[-1] == "job-completed"
    assert kinds.index("job-taken") < kinds.index("job-reallocated") < len(kinds) - 1
    assert events[kinds.index("job-reallocated")]["text"] == moved["event"]
    assert "job-runs" in kinds[kinds.index("job-reallocated") :]
    assert all(each["time"] != "unknown" for each in events)
