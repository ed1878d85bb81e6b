"""Jobs on Spark with a real ZooKeeper and real workers; the query itself is a fake without Spark.

So the worker's side is tested: who runs the query, what ends it, and that its result appears once,
whoever dies.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest
from tests.support.jobs.yaml_jobs import until
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster
from tests.support.spark import fake_query, frames_query

from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer
from onyx.spark.driver import process
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
MODULE = "people_on_spark"
USER_CODE = """
import os, pathlib, time
HERE = pathlib.Path(__file__).parent

def greet(person):
    note = HERE / f"query-{os.getpid()}"
    note.touch()
    while not (HERE / "gate").exists():
        time.sleep(0.02)
    return {"greeting": "Hello, " + person["name"]}

def brief(person):
    return {"greeting": person["name"]}

def politely(frame):
    (HERE / f"query-{os.getpid()}").touch()
    while not (HERE / "gate").exists():
        time.sleep(0.02)
    return frame.assign(greeting="Hello, " + frame.greeting)
"""
PATCHED = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parents[3])!r}]
from onyx.spark.driver import process
process.COMMAND = {fake_query.COMMAND!r}
"""
"""Of the user's module, so that each worker runs it, however its process was started."""
ROWS = ["Hello, Ada", "Hello, Grace"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / f"{MODULE}.py").write_text(USER_CODE)
    (tmp_path / "people.jsonl").write_text('{"name": "Ada"}\n{"name": "Grace"}\n')
    return tmp_path


@pytest.fixture
def env(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestEnv]:
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(process, "COMMAND", fake_query.COMMAND)
    with with_test_env(2, modules=[MODULE]) as env:
        yield env


def manifest(folder: Path) -> dict[str, Any]:
    people = {"path": str(folder / "people.jsonl"), "format": "jsonl"}
    out = {"path": str(folder / "out"), "format": "jsonl"}
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "hello"},
        "spec": {
            "engine": "spark",
            "workflow": [["people", "greet"], ["greet", "out"]],
            "catalog": [
                {"name": "people", "type": "input", "plugin": "files", "options": people},
                {"name": "greet", "type": "function", "fn": f"{MODULE}:greet"},
                {"name": "out", "type": "output", "plugin": "files", "options": out},
            ],
        },
    }


def with_a_stage(folder: Path) -> dict[str, Any]:
    """The same with a Spark stage in the middle, in which the query waits."""
    made = manifest(folder)
    people, _, out = made["spec"]["catalog"]
    made["spec"]["workflow"] = [["people", "greet"], ["greet", "stage"], ["stage", "out"]]
    made["spec"]["catalog"] = [
        people,
        {"name": "greet", "type": "function", "fn": f"{MODULE}:brief"},
        {"name": "stage", "type": "function", "sparkStage": f"{MODULE}:politely",
         "options": {"path": str(folder / "bundles")}},
        out,
    ]  # fmt: skip
    return made


def files_of_stages(folder: Path) -> list[Path]:
    return [path for path in (folder / "bundles").rglob("*") if path.is_file()]


def rows(folder: Path) -> list[str]:
    texts = [path.read_text() for path in (folder / "out").glob("part-*")]
    return sorted(json.loads(line)["greeting"] for text in texts for line in text.splitlines())


def staged(folder: Path) -> list[Path]:
    return [
        path for path in (folder / "out").rglob("*") if path.is_file() and ".staging" in path.parts
    ]


def open_gate(folder: Path) -> None:
    (folder / "gate").touch()


def wait_for(found: Callable[[], Any], what: str) -> Any:
    for _ in range(int(WAIT_S * 50)):
        if value := found():
            return value
        Event().wait(0.02)
    raise AssertionError(f"never happened: {what}")


def query(folder: Path, but: tuple[int, ...] = ()) -> psutil.Process:
    """The process that is in the user's function now."""

    def found() -> list[int]:
        pids = [int(path.name.partition("-")[2]) for path in folder.glob("query-*")]
        return [pid for pid in pids if pid not in but]

    return psutil.Process(wait_for(found, "a query calls the function")[0])


def started(env: TestEnv, folder: Path) -> tuple[JobId, psutil.Process]:
    return env.submit(manifest(folder)), query(folder)


def test_a_job_on_spark_completes_with_one_peer(env: TestEnv, folder: Path) -> None:
    job, _ = started(env, folder)
    status = env.client.status(job)
    assert (status.state, status.peers) == ("running", 1)
    assert rows(folder) == []
    open_gate(folder)
    assert env.client.wait(job, WAIT_S)
    assert rows(folder) == ROWS
    assert staged(folder) == []


@pytest.mark.slow
def test_a_suspended_job_begins_anew_when_it_is_resumed(env: TestEnv, folder: Path) -> None:
    job, first = started(env, folder)
    env.client.suspend(job)
    first.wait(WAIT_S)
    open_gate(folder)
    until(env, lambda replica: not replica.run(job).allocation)
    env.client.resume(job)
    assert env.client.wait(job, WAIT_S)
    assert rows(folder) == ROWS


@pytest.mark.slow
def test_nothing_is_left_of_a_job_that_is_killed(env: TestEnv, folder: Path) -> None:
    job, running = started(env, folder)
    env.client.kill(job)
    running.wait(WAIT_S)
    assert not env.client.wait(job, WAIT_S)
    assert rows(folder) == []


def test_a_job_that_is_drained_completes_without_a_result(env: TestEnv, folder: Path) -> None:
    job, running = started(env, folder)
    env.client.drain(job)
    assert env.client.wait(job, WAIT_S)
    running.wait(WAIT_S)
    assert rows(folder) == []


@pytest.mark.slow
def test_a_query_whose_process_is_killed_is_run_again(env: TestEnv, folder: Path) -> None:
    job, first = started(env, folder)
    first.kill()
    query(folder, but=(first.pid,))
    open_gate(folder)
    assert env.client.wait(job, WAIT_S)
    assert rows(folder) == ROWS


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, folder: Path) -> Iterator[Cluster]:
    (folder / f"{MODULE}.py").write_text(USER_CODE + PATCHED)
    with Cluster(zookeeper.address, folder, folder / f"{MODULE}.py") as cluster:
        cluster.start_workers(2, 1)
        yield cluster


@pytest.mark.parametrize("end", ["killed", pytest.param("frozen", marks=pytest.mark.slow)])
def test_when_its_worker_dies_another_one_runs_the_query_and_the_result_appears_once(
    cluster: Cluster, folder: Path, end: str
) -> None:
    job = cluster.submit(manifest(folder))
    first = query(folder)
    (peer,) = cluster.replica.run(job).allocation["spark"]  # type: ignore[index]
    worker = cluster.worker_of(peer)
    group = cluster.group_of(worker)
    stopped = psutil.Process(worker.pid).children(recursive=True)
    if end == "killed":
        worker.kill()
        first.wait(WAIT_S)
    else:  # all of it but the query, which goes on and stages its result
        for each in [psutil.Process(worker.pid), *stopped]:
            if each.pid != first.pid:
                each.suspend()
    cluster.await_gone([group])
    query(folder, but=(first.pid,))
    open_gate(folder)
    cluster.await_completed(job, WAIT_S)
    assert rows(folder) == ROWS
    if end == "frozen":
        for each in [psutil.Process(worker.pid), *stopped]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.resume()
        cluster.await_members([worker], 1)
        assert rows(folder) == ROWS


@pytest.mark.parametrize("end", ["completed", pytest.param("killed", marks=pytest.mark.slow)])
def test_files_of_a_stage_in_the_middle_go_with_its_query(
    env: TestEnv, folder: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(process, "COMMAND", frames_query.COMMAND)
    job = env.submit(with_a_stage(folder))
    query(folder)
    assert files_of_stages(folder)
    if end == "killed":
        env.client.kill(job)
    else:
        open_gate(folder)
    assert env.client.wait(job, WAIT_S) is (end == "completed")
    assert rows(folder) == (ROWS if end == "completed" else [])
    wait_for(lambda: not any((folder / "bundles").iterdir()), "the files are removed")


@pytest.mark.slow
def test_when_its_worker_dies_in_a_stage_another_one_begins_anew(
    zookeeper: ZooKeeperServer, folder: Path
) -> None:
    patched = PATCHED.replace("fake_query", "frames_query")
    (folder / f"{MODULE}.py").write_text(USER_CODE + patched)
    with Cluster(zookeeper.address, folder, folder / f"{MODULE}.py") as cluster:
        cluster.start_workers(2, 1)
        job = cluster.submit(with_a_stage(folder))
        first = query(folder)
        (peer,) = cluster.replica.run(job).allocation["spark"]
        worker = cluster.worker_of(peer)
        group = cluster.group_of(worker)
        worker.kill()
        first.wait(WAIT_S)
        cluster.await_gone([group])
        query(folder, but=(first.pid,))
        open_gate(folder)
        cluster.await_completed(job, WAIT_S)
        assert rows(folder) == ROWS
        wait_for(lambda: not any((folder / "bundles").iterdir()), "files of both are removed")
