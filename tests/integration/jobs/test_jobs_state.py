"""State of a running job, asked from outside: two worker processes, TLS, real gRPC."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from tests.support.servers.certificates import WORKERS, Secret
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import onyx

from onyx import api
from onyx.client.window_view import WindowView
from onyx.errors import UserError
from onyx.ids import JobId
from onyx.settings import StateSettings, ZooKeeperSettings

pytestmark = pytest.mark.server
GROUPS, WIDTH = 8, 1_000
QUESTIONS_MAX = 600
STEPS = """
def make(n):
    return {"n": n, "group": n % 8}


def nothing(event, window, trigger, state_event, state):
    return None
"""
SELDOM = {"type": "segment", "threshold": [10**9, "elements"], "refinement": "accumulating",
          "emit": "state_steps:nothing"}  # fmt: skip
JOB = {
    "apiVersion": "onyx.dev/v1alpha1",
    "kind": "OnyxJob",
    "metadata": {"name": "counting"},
    "spec": {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["read", "total"], ["count", "write"], ["total", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "generator", "batchSize": 100,
             "maxPeers": 1, "options": {"fn": "state_steps:make", "ratePerSecond": 4_000}},
            {"name": "count", "type": "reduce", "batchSize": 100, "groupByKey": "group",
             "minPeers": 2, "fluxPolicy": "continue"},
            {"name": "total", "type": "reduce", "batchSize": 100},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 100,
             "maxPeers": 1},
        ],
        "windows": [
            {"id": "counts", "task": "count", "type": "fixed", "aggregation": "count",
             "windowKey": "n", "range": [WIDTH, "elements"]},
            {"id": "everything", "task": "total", "type": "global", "aggregation": "count"},
        ],
        "triggers": [
            {"windowId": "counts", "id": "seldom", **SELDOM},
            {"windowId": "everything", "id": "seldom", **SELDOM},
        ],
    },
}  # fmt: skip


@pytest.fixture
def cluster(
    secure_zookeeper: ZooKeeperSettings, tmp_path: Path, authority: trustme.CA
) -> Iterator[Cluster]:
    modules = tmp_path / "modules" / "state_steps.py"
    modules.parent.mkdir()
    modules.write_text(STEPS)
    tls = Secret(tmp_path / "tls", authority).settings(WORKERS)
    with Cluster(secure_zookeeper, tmp_path, modules, tls=tls) as cluster:
        state = StateSettings(url=str(tmp_path / "state"))
        cluster.settings = dataclasses.replace(cluster.settings, state=state)
        yield cluster


def full_extents(view: WindowView) -> int:
    """How many extents the group that is furthest behind has full; none has too much."""
    counted = defaultdict(dict)
    for extent in view.extents:
        assert extent.upper - extent.lower == WIDTH - 1
        assert extent.state <= WIDTH // GROUPS
        counted[extent.group][extent.lower] = extent.state
    if set(counted) != set(range(GROUPS)):
        return 0
    full = [sum(n == WIDTH // GROUPS for n in each.values()) for each in counted.values()]
    return min(full)


def until_full(cluster: Cluster, job: JobId, extents: int) -> WindowView:
    for _ in range(QUESTIONS_MAX):
        view = api.window_state(cluster.settings, job, "counts", timeout_s=30)
        if full_extents(view) >= extents:
            return view
    raise AssertionError(f"{extents} extents did not become full: {view}")


def test_a_running_job_tells_its_state_while_workers_die(cluster: Cluster) -> None:
    workers = cluster.start_workers(2, peers=5)
    job = cluster.submit(JOB)
    cluster.await_ready(job)
    view = until_full(cluster, job, 2)
    replica = cluster.client.replica()
    owners = replica.run(job).allocation["count"]
    assert len({replica.groups_reverse_index[peer] for peer in owners}) == 2
    assert [(each.group, each.lower) for each in view.extents] == sorted(
        (each.group, each.lower) for each in view.extents
    )

    workers[0].kill()
    until_full(cluster, job, full_extents(view) + 1)
    (one,) = api.window_state(cluster.settings, job, "everything").extents
    assert (one.group, math.isinf(one.lower)) == (None, True)
    assert one.state > 0

    reported = onyx(cluster.settings, "state", job, "counts", "--key", 3, "--json")
    assert reported.returncode == 0, reported.stderr
    lines = [json.loads(line) for line in reported.stdout.splitlines()]
    assert {line["key"] for line in lines} == {3}
    assert {"key": 3, "from": 0, "to": WIDTH - 1, "state": WIDTH // GROUPS} in lines

    reported = onyx(cluster.settings, "state", job, "counts", "--limit", 1)
    row = next(line for line in reported.stdout.splitlines() if line.startswith("│"))
    assert [cell.strip() for cell in row.split("│")[1:5]] == ["0", "0", "999", "125"]
    assert "these are the first 1 extents" in reported.stderr

    reported = onyx(cluster.settings, "state", job, "count")
    assert reported.returncode == 2
    assert (
        "has no window 'count': it has counts, everything; did you mean counts?" in reported.stderr
    )

    cluster.client.kill(job)
    with pytest.raises(UserError, match=f"job {job} is killed"):
        api.window_state(cluster.settings, job, "counts")
