"""State of a running job, asked from outside: two worker processes, TLS, real gRPC."""

from __future__ import annotations

import asyncio
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme
from msgspec.structs import replace
from tests.support.jobs.yaml_jobs import job_of
from tests.support.patience import WAIT_S
from tests.support.servers.certificates import WORKERS, Secret
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import onyx

from onyx import api
from onyx.client.measures import measures
from onyx.client.served_states import ServedStates
from onyx.client.window_view import WindowView
from onyx.gateway.states import AskedState, StateForm
from onyx.ids import JobId
from onyx.settings import StateSettings, ZooKeeperSettings
from onyx.transport.state_queries import MEASURES

pytestmark = pytest.mark.server
GROUPS, WIDTH = 8, 1_000
QUESTIONS_MAX = 600
STEPS = """
def make(n):
    return {"n": n, "group": n % 8}


def nothing(event, window, trigger, state_event, state):
    return None


def last(segment, state):
    state.seen = (state.seen or 0) + 1
    state.last["n"] = segment["n"]
"""
SELDOM = {"type": "segment", "threshold": [10**9, "elements"], "refinement": "accumulating",
          "emit": "state_steps:nothing"}  # fmt: skip
JOB = job_of("counting", {
    "guarantee": "exactly-once",
    "workflow": [["read", "count"], ["read", "total"], ["count", "write"], ["total", "write"],
                 ["read", "keep"], ["keep", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "generator", "batchSize": 100,
         "maxPeers": 1, "options": {"fn": "state_steps:make", "ratePerSecond": 4_000}},
        {"name": "count", "type": "reduce", "batchSize": 100, "groupByKey": "group",
         "minPeers": 2, "fluxPolicy": "continue"},
        {"name": "total", "type": "reduce", "batchSize": 100},
        {"name": "keep", "type": "function", "fn": "state_steps:last", "batchSize": 100,
         "groupByKey": "group", "maxPeers": 1, "fluxPolicy": "continue",
         "state": {"seen": "value[int]", "last": "map[str, int]"}},
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
})  # fmt: skip


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
        cluster.settings = replace(cluster.settings, state=state)
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
        view = api.window_state(cluster.settings, job, "counts", timeout_s=60)
        if full_extents(view) >= extents:
            return view
    raise AssertionError(f"{extents} extents did not become full: {view}")


def by_group(view: WindowView) -> dict[int, Any]:
    return {each.group: each.state for each in view.extents}


@pytest.mark.slow
def test_a_job_tells_its_state_while_workers_die_and_when_it_has_ended(
    cluster: Cluster, tmp_path: Path
) -> None:
    workers = cluster.start_workers(2, peers=6)
    job = cluster.submit(JOB)
    cluster.await_ready(job)
    view = until_full(cluster, job, 2)
    replica = cluster.client.replica()
    owners = replica.run(job).allocation["count"]
    assert len({replica.groups_reverse_index[peer] for peer in owners}) == 2
    assert [(each.group, each.lower) for each in view.extents] == sorted(
        (each.group, each.lower) for each in view.extents
    )

    check_what_is_measured(cluster, job)
    told = states(api.window_state(cluster.settings, job, "counts", durable=True))
    workers[0].kill()
    after = states(api.window_state(cluster.settings, job, "counts", timeout_s=60))
    assert all(after[each] >= state for each, state in told.items()), "no crash takes it back"
    until_full(cluster, job, full_extents(view) + 1)
    (one,) = api.window_state(cluster.settings, job, "everything").extents
    assert (one.group, math.isinf(one.lower)) == (None, True)
    assert one.state > 0

    seen = by_group(api.window_state(cluster.settings, job, "keep.seen", timeout_s=60))
    assert set(seen) == set(range(GROUPS))
    only = api.Selection(key=3)
    last = by_group(api.window_state(cluster.settings, job, "keep.last", only, timeout_s=60))
    assert last[3]["n"] % GROUPS == 3
    assert last[3]["n"] // GROUPS + 1 >= seen[3]

    reported = onyx(cluster.settings, "state", job, "counts", "--key", 3, "--json")
    assert reported.returncode == 0, reported.stderr
    lines = [json.loads(line) for line in reported.stdout.splitlines()]
    assert {line["key"] for line in lines} == {3}
    assert {"key": 3, "from": 0, "to": WIDTH - 1, "state": WIDTH // GROUPS} in lines

    reported = onyx(cluster.settings, "state", job, "counts", "--limit", 1)
    row = next(line for line in reported.stdout.splitlines() if line.startswith("│"))
    assert [cell.strip() for cell in row.split("│")[1:5]] == ["0", "0", "999", "125"]
    assert "these are 1 extents, and there are more" in reported.stderr
    after_it = reported.stderr.split("--after ")[1].split(",")[0]
    reported = onyx(cluster.settings, "state", job, "counts", "--after", after_it, "--limit", 1,
                    "--json")  # fmt: skip
    assert json.loads(reported.stdout)["from"] == WIDTH

    reported = onyx(cluster.settings, "state", job)
    assert "everything │ total │ global window" in reported.stdout

    reported = onyx(cluster.settings, "state", job, "count")
    assert reported.returncode == 2
    assert (
        "has no state 'count': it has counts, everything, keep.last, keep.seen; did you "
        "mean counts?" in reported.stderr
    )

    served = ServedStates(cluster.settings)
    shown = over_http(served, job, MEASURES, durable=False)
    assert {each["task"] for each in shown["tasks"]} >= {"read", "count", "write"}
    assert len(shown["workers"]) == 1
    assert over_http(served, job, "everything", durable=True)["extents"][0]["state"] > 0
    told = states(api.window_state(cluster.settings, job, "counts", durable=True))
    counted = by_group(api.window_state(cluster.settings, job, "keep.seen", durable=True))
    cluster.client.kill(job)
    ended = by_group(api.window_state(cluster.settings, job, "keep.seen"))
    assert all(ended[each] >= count for each, count in counted.items())
    found = over_http(served, job, "counts", durable=False)
    assert [(each["key"], each["from"]) for each in found["extents"]] == [(0, 0), (0, WIDTH)]
    assert found["next"]
    served.close()
    check_what_is_kept(cluster, job, told, tmp_path)


def check_what_is_measured(cluster: Cluster, job: JobId) -> None:
    """By both workers: rates are known when a worker has looked twice."""
    for _ in range(QUESTIONS_MAX):
        measured = measures(cluster.settings, job, timeout_s=WAIT_S)
        assert measured.silent == {}
        assert len(measured.workers) == 2
        if {each.task for each in measured.tasks if each.in_per_s} >= {"read", "count", "keep"}:
            return
    raise AssertionError(f"nothing moves: {measured}")


def over_http(served: ServedStates, job: JobId, window: str, durable: bool) -> Any:
    """What a worker answers to a GET."""
    asked = AskedState(job, window, api.Selection(), 2, durable, 30.0, StateForm.JSON)
    return json.loads(asyncio.run(served.answer(asked)).body)


def states(view: WindowView) -> dict[tuple[int, int], int]:
    return {(each.group, each.lower): each.state for each in view.extents}


def check_what_is_kept(
    cluster: Cluster, job: JobId, told: dict[tuple[int, int], int], folder: Path
) -> None:
    """The state log of a job that was killed is read, in pages, ranges, and as record batches."""
    kept = states(api.window_state(cluster.settings, job, "counts"))
    assert all(kept[each] >= state for each, state in told.items())

    pages = list(api.window_pages(cluster.settings, job, "counts", extents_max=300))
    assert [len(page.extents) for page in pages[:-1]] == [300] * (len(pages) - 1)
    assert list(chain.from_iterable(map(states, pages))) == sorted(kept)

    some = api.Selection(key_from=2, key_to=4, time_from=WIDTH, time_to=2 * WIDTH)
    found = states(api.window_state(cluster.settings, job, "counts", some))
    assert found == {each: kept[each] for each in ((2, WIDTH), (3, WIDTH))}

    file = folder / "counts.arrow"
    reported = onyx(cluster.settings, "state", job, "counts", "--arrow", file)
    assert reported.returncode == 0, reported.stderr
    with pa.ipc.open_stream(str(file)) as stream:
        table = stream.read_all()
    assert table["state"].to_pylist() == [kept[each] for each in sorted(kept)]
