"""A segment that ends its process is found, named and refused; kills from outside blame nobody."""

from __future__ import annotations

import contextlib
import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace
from tests.chaos.poison_job import POISON, POISON_TOO
from tests.support.patience import WAIT_S, rounds
from tests.support.servers.cluster import Cluster, Worker

from onyx.log.server.process import ZooKeeperServer
from onyx.settings import SupervisorSettings

pytestmark = pytest.mark.server

RECORDS = 5_000
MODULE = Path(__file__).with_name("poison_job.py")


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Cluster]:
    lines = [json.dumps({"n": n}) for n in range(RECORDS)]
    for part in range(2):
        (tmp_path / f"in{part}.jsonl").write_text("\n".join(lines[part::2]) + "\n")
    with Cluster(zookeeper.address, tmp_path, MODULE) as made:
        yield made


def manifest(folder: Path, fn: str = "same", dead_letter: bool = False, **more: Any) -> Any:
    """read -> work -> write, and dead letters of work in `bad`."""
    work = {"name": "work", "type": "function", "fn": f"poison_job:{fn}", "batchSize": 200}
    spec: dict[str, Any] = {
        "workflow": [["read", "work"], ["work", "write"]],
        "guarantee": "exactly-once",
        "catalog": [
            {
                "name": "read",
                "type": "input",
                "plugin": "files",
                "batchSize": 200,
                "options": {"path": str(folder / "in*.jsonl")},
            },
            {**work, **more.pop("work", {})},
            output(folder, "write"),
        ],
    }
    if dead_letter:
        spec["catalog"][1]["deadLetter"] = "bad"
        spec["catalog"].append(output(folder, "bad"))
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "poison"},
        "spec": {**spec, **more},
    }


def output(folder: Path, name: str) -> dict[str, Any]:
    options = {"path": str(folder / name), "format": "jsonl", "rollSeconds": 0.2}
    return {
        "name": name,
        "type": "output",
        "plugin": "files",
        "batchSize": 200,
        "options": options,
    }


def written(folder: Path, name: str) -> list[dict[str, Any]]:
    paths = sorted((folder / name).glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def killed_because(cluster: Cluster, job: Any) -> str:
    cluster.until(lambda replica: job in replica.killed_jobs, f"{job} is killed", WAIT_S)
    return str((cluster.client.status(job).exception or {}).get("detail"))


def deaths(cluster: Cluster) -> int:
    """Processes that have died inside user code, by what their supervisors say."""
    return sum(each.log.read_text().count(" inside user code: ") for each in cluster.workers)


NAMED = f"partition {POISON % 2} of read at position {POISON // 2} has ended its worker process 3"


@pytest.mark.slow
@pytest.mark.parametrize("fn", ["exits", pytest.param("crashes", marks=pytest.mark.slow)])
def test_without_a_dead_letter_the_job_is_killed_and_the_segment_named(
    fn: str, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_workers(2, peers=2)
    job = cluster.submit(manifest(tmp_path, fn))
    assert NAMED in killed_because(cluster, job)
    assert deaths(cluster) == 3
    healthy = manifest(tmp_path, "same")
    healthy["spec"]["catalog"][2]["options"]["path"] = str(tmp_path / "healthy")
    cluster.await_completed(cluster.submit(healthy), WAIT_S)
    assert sorted(each["n"] for each in written(tmp_path, "healthy")) == list(range(RECORDS))


@pytest.mark.slow
@pytest.mark.parametrize(
    "work",
    [
        {"fn": "poison_job:exits_over_two", "batchFn": True},
        {"fn": "poison_job:crashes_over_two", "batchFormat": "arrow"},
    ],
    ids=["batch function", "columns"],
)
def test_two_of_them_cost_three_processes_each_however_many_there_are(
    work: dict[str, Any], cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_workers(4, peers=2)
    spec = manifest(tmp_path, dead_letter=True, work={**work, "minPeers": 5})
    cluster.await_completed(cluster.submit(spec), WAIT_S)
    bad = {each["segment"]["n"] for each in written(tmp_path, "bad")}
    good = Counter(each["n"] for each in written(tmp_path, "write"))
    assert bad == {POISON, POISON_TOO}
    assert set(good) == set(range(RECORDS)) - bad
    assert set(good.values()) == {1}
    assert 4 <= deaths(cluster) <= 6


@pytest.mark.parametrize(
    "guarantee", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.slow)]
)
def test_with_a_dead_letter_all_others_arrive_while_processes_are_killed_from_outside(
    guarantee: str, cluster: Cluster, tmp_path: Path
) -> None:
    workers = cluster.start_workers(2, peers=3)
    job = cluster.submit(manifest(tmp_path, "exits_slowly", dead_letter=True, guarantee=guarantee))
    for number in range(4):
        cluster.await_ready(job, WAIT_S)
        kill_from_outside(workers[number % 2])
    cluster.await_completed(job, WAIT_S)
    good = Counter(each["n"] for each in written(tmp_path, "write"))
    bad = written(tmp_path, "bad")
    assert set(good) == set(range(RECORDS)) - {POISON}
    letters = {(each["segment"]["n"], each["error"]["type"]) for each in bad}
    assert letters == {(POISON, "PoisonSegment")}
    assert NAMED in bad[0]["error"]["message"]
    if guarantee == "exactly-once":
        assert set(good.values()) == {1}
        assert len(bad) == 1


def test_one_that_has_its_process_killed_is_found_and_a_neighbour_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_workers(3, peers=2)
    neighbour = manifest(tmp_path, "slow")
    neighbour["metadata"]["name"] = "neighbour"
    neighbour["spec"]["catalog"][2]["options"]["path"] = str(tmp_path / "beside")
    beside = cluster.submit(neighbour)
    guilty = cluster.submit(manifest(tmp_path, "is_killed", dead_letter=True))
    cluster.await_completed(guilty, WAIT_S)
    cluster.await_completed(beside, WAIT_S)
    bad = written(tmp_path, "bad")
    assert [(each["segment"]["n"], each["error"]["type"]) for each in bad] == [
        (POISON, "PoisonSegment")
    ]
    assert sorted(each["n"] for each in written(tmp_path, "beside")) == list(range(RECORDS))
    assert {each["n"] for each in written(tmp_path, "write")} == set(range(RECORDS)) - {POISON}
    assert 3 <= deaths(cluster) <= 5


@pytest.mark.slow
def test_one_over_which_whole_containers_are_killed_is_found(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POISON_FOLDER", str(tmp_path))
    supervisor = SupervisorSettings(recorder_folder=str(tmp_path / "recorders"))
    cluster.settings = replace(cluster.settings, supervisor=supervisor)
    (worker,) = cluster.start_workers(1, peers=4)
    job = cluster.submit(manifest(tmp_path, "stays_inside", dead_letter=True))
    killed = 0
    for _ in rounds():
        if cluster.client.status(job).state == "completed":
            break
        if len(list(tmp_path.glob("*.inside"))) > killed:
            worker.kill()
            worker = cluster.start_worker(4)
            killed += 1
    assert 4 <= killed <= 6, "three deaths while it was alone, and at most as many before"
    assert [each["segment"]["n"] for each in written(tmp_path, "bad")] == [POISON]
    assert {each["n"] for each in written(tmp_path, "write")} == set(range(RECORDS)) - {POISON}


def kill_from_outside(worker: Worker) -> None:
    """The process that works, not its supervisor."""
    for child in psutil.Process(worker.pid).children():
        with contextlib.suppress(psutil.Error):  # it has just ended by itself
            child.send_signal(signal.SIGKILL)


WINDOW = {
    "id": "sums",
    "task": "work",
    "type": "global",
    "aggregation": "poison_job:exiting_aggregation",
}
TRIGGER = {
    "windowId": "sums",
    "type": "segment",
    "threshold": [10_000, "elements"],
    "refinement": "accumulating",
    "emit": "poison_job:emitted",
}
PREDICATE = {"from": "work", "to": ["write"], "predicate": "poison_job:exits_in_predicate"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"work": {"fn": "poison_job:exits_in_batch", "batchFn": True}},
        {"flowConditions": [PREDICATE]},
        {"windows": [WINDOW], "triggers": [TRIGGER]},
    ],
    ids=["batch function", "predicate", "aggregation"],
)
def test_wherever_the_users_code_runs_over_it(
    more: dict[str, Any], cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_workers(1, peers=3)
    job = cluster.submit(manifest(tmp_path, **more))
    assert NAMED in killed_because(cluster, job)


def test_in_an_output_as_well(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_workers(1, peers=3)
    spec = manifest(tmp_path, guarantee="at-least-once")
    options = {"fn": "poison_job:exits_in_output"}
    spec["spec"]["catalog"][2] |= {"plugin": "function", "options": options}
    job = cluster.submit(spec)
    assert NAMED in killed_because(cluster, job)


@pytest.mark.slow
def test_a_hook_that_ends_the_process_again_and_again_is_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_workers(1, peers=3)
    lifecycles = [{"task": "work", "calls": "poison_job:exiting_hooks"}]
    job = cluster.submit(manifest(tmp_path, lifecycles=lifecycles))
    assert "trigger of task work" in killed_because(cluster, job)


def test_a_function_that_exits_as_python_does_ends_its_job_and_not_the_worker(
    cluster: Cluster, tmp_path: Path
) -> None:
    (worker,) = cluster.start_workers(1, peers=3)
    before = [each.pid for each in psutil.Process(worker.pid).children()]
    assert "SystemExit: enough" in killed_because(
        cluster, cluster.submit(manifest(tmp_path, "quits"))
    )
    healthy = manifest(tmp_path, "same")
    healthy["spec"]["catalog"][2]["options"]["path"] = str(tmp_path / "healthy")
    cluster.await_completed(cluster.submit(healthy), WAIT_S)
    assert [each.pid for each in psutil.Process(worker.pid).children()] == before
