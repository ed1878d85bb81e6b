"""A Spark stage in the middle of jobs: a real ZooKeeper, real workers and a real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml
from tests.support.jobs.yaml_jobs import until
from tests.support.servers.cluster import Cluster

from onyx.errors import Fenced, UserFunctionError
from onyx.log.server.process import ZooKeeperServer
from onyx.spark.child.request import StageRequest, Watch
from onyx.spark.middle.spool import StageSpool
from onyx.testing import TestEnv, with_test_env

pytestmark = pytest.mark.server
WAIT_S = 240.0
MODULE = "stages_in_the_middle"
USER_CODE = """
import pathlib, time
HERE = pathlib.Path(__file__).parent

def numbered(n):
    return {"n": n, "k": n % 3}

def counted(event, window, trigger, state_event, state):
    return {"k": state_event["group_key"], "many": state}

def doubled(frame):
    return frame.selectExpr("n * 2 AS n", "k")

def joined(read, count_up, least):
    return read.where(read.n >= least).join(count_up, "k").repartition(2)

def held(frame):
    (HERE / f"stage-{time.monotonic_ns()}").touch()
    while not (HERE / "gate").exists():
        time.sleep(0.05)
    return doubled(frame)
"""
JOB = """
    guarantee: GUARANTEE
    workflow: [[read, stage], [stage, write]]
    catalog:
      - {name: read, type: input, plugin: generator, maxPeers: 1,
         options: {segments: 100, fn: "MODULE:numbered"}}
      - {name: stage, type: function, sparkStage: "MODULE:FUNCTION", maxPeers: 2,
         options: {path: FOLDER/bundles, master: "local[1]", rollSeconds: 0.2, MORE}}
      - {name: write, type: output, plugin: files, maxPeers: 1,
         options: {path: FOLDER/out, format: jsonl}}
"""
PATCHED = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parents[3])!r}]
from onyx.spark.middle.spool import StageSpool
from tests.support.spark.fake_stage import double
StageSpool.__init__.__defaults__ = (double,)
"""
"""Of the user's module, so that each worker runs it, however its process was started."""
JOIN = """
    guarantee: exactly-once
    workflow: [[read, stage], [read, count-up], [count-up, stage], [stage, write], [stage, small]]
    catalog:
      - {name: read, type: input, plugin: generator, maxPeers: 1,
         options: {segments: 100, fn: "MODULE:numbered"}}
      - {name: count-up, type: reduce, groupByKey: k, fluxPolicy: continue, maxPeers: 1}
      - {name: stage, type: function, sparkStage: "MODULE:joined", maxPeers: 1,
         options: {path: FOLDER/bundles, master: "local[1]", stageParams: {least: 10}}}
      - {name: write, type: output, plugin: files, maxPeers: 1,
         options: {path: FOLDER/out, format: jsonl}}
      - {name: small, type: output, plugin: files, maxPeers: 1,
         options: {path: FOLDER/small, format: jsonl}}
    windows:
      - {id: counts, task: count-up, type: global, aggregation: count}
    triggers:
      - {windowId: counts, type: watermark, refinement: accumulating, emit: "MODULE:counted"}
    flowConditions:
      - {from: stage, to: [small], predicate: ["<", n, 20]}
      - {from: stage, to: [write], predicate: [">=", n, 20]}
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("code")
    (folder / f"{MODULE}.py").write_text(USER_CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder


@pytest.fixture(scope="module")
def env(code: Path) -> Iterator[TestEnv]:
    with with_test_env(6, modules=[MODULE]) as env:
        yield env


def manifest(
    folder: Path,
    function: str = "doubled",
    guarantee: str = "exactly-once",
    more: str = "",
    job: str = JOB,
) -> dict[str, Any]:
    for word, value in {
        "FOLDER": folder, "MODULE": MODULE, "FUNCTION": function, "GUARANTEE": guarantee,
        "MORE": more,
    }.items():  # fmt: skip
        job = job.replace(word, str(value))
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "middle"},
        "spec": yaml.safe_load(job),
    }


def rows(folder: Path, out: str = "out") -> list[dict[str, Any]]:
    texts = [path.read_text() for path in (folder / out).glob("part-*")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


DOUBLED = sorted((2 * n, n % 3) for n in range(100))


def doubled(folder: Path) -> list[tuple[int, int]]:
    return sorted((each["n"], each["k"]) for each in rows(folder))


def test_rows_of_the_stage_go_on_as_segments(env: TestEnv, tmp_path: Path) -> None:
    assert env.run(manifest(tmp_path), WAIT_S).state == "completed"
    assert doubled(tmp_path) == DOUBLED


@pytest.mark.slow
def test_frames_are_named_after_the_tasks_upstream_and_conditions_are_about_rows(
    env: TestEnv, tmp_path: Path
) -> None:
    assert env.run(manifest(tmp_path, job=JOIN), WAIT_S).state == "completed"
    counts = {0: 34, 1: 33, 2: 33}
    expected = [{"k": n % 3, "n": n, "many": counts[n % 3]} for n in range(10, 100)]

    def number(row: dict[str, Any]) -> int:
        return int(row["n"])

    assert sorted(rows(tmp_path, "small"), key=number) == expected[:10]
    assert sorted(rows(tmp_path), key=number) == expected[10:]


def wait_for(found: Callable[[], Any], what: str) -> Any:
    for _ in range(int(WAIT_S * 20)):
        if value := found():
            return value
        Event().wait(0.05)
    raise AssertionError(f"never happened: {what}")


def stages(code: Path) -> set[str]:
    """Runs of `held` that have begun."""
    return {path.name for path in code.glob("stage-*")}


@pytest.fixture
def gate(code: Path) -> Iterator[Path]:
    """Opened by a test, it lets `held` go on."""
    path = code / "gate"
    yield path
    path.unlink(missing_ok=True)


def bundles(folder: Path) -> list[dict[str, Any]]:
    (task,) = [path for path in (folder / "bundles").iterdir() if path.name != ".staging"]
    return [json.loads(path.read_text()) for path in sorted((task / "bundles").glob("*.json"))]


def test_bundles_end_by_segments_and_the_last_with_the_input(env: TestEnv, tmp_path: Path) -> None:
    job = manifest(tmp_path, more="bundleSegments: 30, rollSegments: 10")
    assert env.run(job, WAIT_S).state == "completed"
    assert doubled(tmp_path) == DOUBLED
    found = bundles(tmp_path)
    assert [each["number"] for each in found] == list(range(1, len(found) + 1))
    assert [each["last"] for each in found] == [False] * (len(found) - 1) + [True]
    (task,) = [path for path in (tmp_path / "bundles").iterdir() if path.name != ".staging"]
    assert list((task / "parts").glob("*.parquet")) == []


@pytest.mark.slow
def test_when_the_worker_that_runs_the_stage_dies_another_one_does_and_each_row_comes_once(
    zookeeper: ZooKeeperServer, code: Path, gate: Path, tmp_path: Path
) -> None:
    with Cluster(zookeeper.address, tmp_path, code / f"{MODULE}.py") as cluster:
        cluster.start_workers(2, 4)
        before = stages(code)
        job = cluster.submit(manifest(tmp_path, "held"))
        first = wait_for(lambda: stages(code) - before, "the stage begins")
        run = cluster.replica.run(job)
        leads = min(run.slots["stage"].items(), key=lambda item: item[1])[0]  # type: ignore[index]
        worker = cluster.worker_of(leads)
        group = cluster.group_of(worker)
        worker.kill()
        cluster.await_gone([group])
        wait_for(lambda: stages(code) - before - first, "the stage begins anew")
        gate.touch()
        cluster.await_completed(job, WAIT_S)
    assert doubled(tmp_path) == DOUBLED


class FakeSpark:
    """Doubles as `doubled` does, in this process. A run waits until the test lets it go on."""

    def __init__(self) -> None:
        self.runs: list[Event] = []
        self.error = ""

    def __call__(self, request: StageRequest, timeout_s: float, watch: Watch) -> None:
        goes_on = Event()
        self.runs.append(goes_on)
        while not goes_on.wait(0.02):
            if not watch.wanted():
                raise Fenced("the run was not wanted any more")
        if self.error:
            raise UserFunctionError(self.error)
        Path(request.target).mkdir()
        tables = [pq.read_table(part) for frame in request.frames for part in frame.parts]
        table = pa.concat_tables(tables)
        table = table.set_column(0, "n", pc.multiply(table.column("n"), 2))
        pq.write_table(table, Path(request.target) / "part-0.parquet")

    def begun(self, runs: int) -> Event:
        """Wait until so many runs have begun; what lets the last of them go on."""
        wait_for(lambda: len(self.runs) >= runs, f"run {runs} begins")
        return self.runs[runs - 1]


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    fake = FakeSpark()
    monkeypatch.setattr(StageSpool.__init__, "__defaults__", (fake,))
    return fake


@pytest.mark.slow
def test_at_least_once_the_stage_gets_all_segments(
    env: TestEnv, spark: FakeSpark, tmp_path: Path
) -> None:
    job = env.submit(manifest(tmp_path, guarantee="at-least-once"))
    spark.begun(1).set()
    assert env.client.wait(job, WAIT_S)
    assert doubled(tmp_path) == DOUBLED


def test_a_stage_that_fails_kills_the_job_with_its_error(
    env: TestEnv, spark: FakeSpark, tmp_path: Path
) -> None:
    spark.error = "ValueError: no such column"
    job = env.submit(manifest(tmp_path))
    for run in 1, 2, 3:
        spark.begun(run).set()
    assert not env.client.wait(job, WAIT_S)
    exception = env.client.status(job).exception
    assert exception is not None
    assert (exception["task"], spark.error in str(exception)) == ("stage", True)
    assert rows(tmp_path) == []


@pytest.mark.slow
def test_a_suspended_job_runs_its_stage_again_and_emits_each_row_once(
    env: TestEnv, spark: FakeSpark, tmp_path: Path
) -> None:
    job = env.submit(manifest(tmp_path))
    spark.begun(1)
    env.client.suspend(job)
    until(env, lambda replica: not replica.run(job).allocation)
    env.client.resume(job)
    goes_on = spark.begun(2)
    assert rows(tmp_path) == []
    goes_on.set()
    assert env.client.wait(job, WAIT_S)
    assert doubled(tmp_path) == DOUBLED


@pytest.mark.slow
def test_a_job_that_is_killed_in_its_stage_leaves_no_row(
    env: TestEnv, spark: FakeSpark, tmp_path: Path
) -> None:
    job = env.submit(manifest(tmp_path))
    spark.begun(1)
    env.client.kill(job)
    assert not env.client.wait(job, WAIT_S)
    assert rows(tmp_path) == []
    assert list((tmp_path / "bundles").glob("*.stage/results/**/*.parquet")) == []


@pytest.mark.slow
def test_a_job_that_drains_passes_on_what_its_stage_makes(
    env: TestEnv, spark: FakeSpark, tmp_path: Path
) -> None:
    job = env.submit(manifest(tmp_path))
    goes_on = spark.begun(1)
    env.client.drain(job)
    goes_on.set()
    assert env.client.wait(job, WAIT_S)
    assert doubled(tmp_path) == DOUBLED


@pytest.mark.slow
def test_what_runs_is_shown_as_the_reason_why_the_job_does_not_advance(
    env: TestEnv, spark: FakeSpark, tmp_path: Path
) -> None:
    job = env.submit(manifest(tmp_path))
    goes_on = spark.begun(1)
    shown = "Spark stage over bundle 1, attempt 1, is running"
    wait_for(lambda: shown in str(env.client.status(job)), "the stage is shown")
    goes_on.set()
    assert env.client.wait(job, WAIT_S)


@pytest.mark.slow
def test_bundles_of_a_stream_come_through_once_although_workers_are_killed_and_frozen(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """A worker is lost after every other result, whatever the others are at then."""
    module = tmp_path / f"{MODULE}.py"
    module.write_text(USER_CODE + PATCHED)
    many = 2_400
    spec = manifest(tmp_path, more="bundleSegments: 250, rollSegments: 60")
    read = spec["spec"]["catalog"][0]
    read["options"] |= {"segments": many, "ratePerSecond": 200, "partitions": 2}
    read["maxPeers"] = 2
    with Cluster(zookeeper.address, tmp_path, module) as cluster:
        workers = cluster.start_workers(2, 5)
        job = cluster.submit(spec)
        for number, end in ((2, "kill"), (4, "stop"), (6, "kill")):
            wait_for(
                lambda number=number: list((tmp_path / "bundles").glob(f"*/results/0*{number}")),
                f"result {number}",
            )
            victim = workers.pop(0)
            group = cluster.group_of(victim)
            victim.kill() if end == "kill" else victim.stop()
            cluster.await_gone([group])
            if end == "stop":
                victim.resume()
                workers.append(victim)
                cluster.await_members([victim], 5)
            else:
                workers += cluster.start_workers(1, 5)
        cluster.await_completed(job, WAIT_S)
    assert doubled(tmp_path) == sorted((2 * n, n % 3) for n in range(many))
