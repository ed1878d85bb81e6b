"""A job that begins with a savepoint of another: real workers of another cluster, with a tenancy
and a state of their own."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.jobs.yaml_jobs import channel, job_of, taken, until
from tests.support.log.logs import served
from tests.support.patience import WAIT_S
from tests.support.servers.cluster import Cluster
from tests.support.servers.object_stores import ObjectStore
from tests.support.servers.processes import onyx

from onyx.backup.savepoints import SavepointMaker
from onyx.client.appender import Appender
from onyx.client.appending import addresses_of
from onyx.ids import JobId
from onyx.plugins.channel import Channel
from onyx.settings import StateSettings
from onyx.state.savepoint import SavepointPlace
from onyx.testing import with_test_env

pytestmark = pytest.mark.server
PEERS, WIDTH, GROUPS, SEGMENTS = 7, 500, 4, 5_000
ALL = {"segments": SEGMENTS}
STEPS = f"""
import pyarrow as pa
import pyarrow.compute as pc


def make(n):
    return {{"n": n, "group": n % {GROUPS}, "time": n}}


def number(segment, state):
    state.seen = (state.seen or 0) + 1
    return {{"n": segment["n"], "seen": state.seen}}


def doubled(table):
    return table.append_column("twice", pc.multiply(table["n"], 2))


def counted(event, window, trigger, state_event, state):
    return {{"group": state_event["group_key"], "from": state_event["lower_bound"], "count": state}}
"""


def job(folder: Path, **options: Any) -> dict[str, Any]:
    """Windows of columns and keyed state of dicts, each segment once, into files."""
    write = {"type": "output", "plugin": "files", "batchSize": 100}
    return job_of("counting", {
        "guarantee": "exactly-once",
        "workflow": [["read", "double"], ["double", "count"], ["read", "number"],
                     ["count", "counts"], ["number", "numbers"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "generator", "batchSize": 50, "maxPeers": 1,
             "watermarkKey": "time",
             "options": {"fn": "saved_steps:make", "ratePerSecond": 1_000, **options}},
            {"name": "double", "type": "function", "fn": "saved_steps:doubled",
             "batchFormat": "arrow"},
            {"name": "count", "type": "reduce", "groupByKey": "group", "fluxPolicy": "continue",
             "batchFormat": "arrow"},
            {"name": "number", "type": "function", "fn": "saved_steps:number",
             "groupByKey": "group", "fluxPolicy": "continue", "state": {"seen": "value[int]"}},
            {"name": "counts", "options": {"path": f"{folder}/counts", "format": "jsonl"}, **write},
            {"name": "numbers", "options": {"path": f"{folder}/numbers", "format": "jsonl"},
             **write},
        ],
        "windows": [{"id": "counts", "task": "count", "type": "fixed", "aggregation": "count",
                     "windowKey": "time", "range": [WIDTH, "milliseconds"]}],
        "triggers": [{"windowId": "counts", "type": "watermark", "postEvictor": ["all"],
                      "emit": "saved_steps:counted"}],
    })  # fmt: skip


def beginning_with(savepoint: str, manifest: dict[str, Any], **upgrade: Any) -> dict[str, Any]:
    spec = {**manifest["spec"], "upgrade": {"savepoint": savepoint, **upgrade}}
    return {**manifest, "spec": spec}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str], Cluster]]:
    """Opens a cluster with a log, a state and a tenancy of its own."""
    modules = tmp_path / "saved_steps.py"
    modules.write_text(STEPS)
    with ExitStack() as stack:

        def open_cluster(state: str) -> Cluster:
            where = tmp_path / f"log-{time.monotonic_ns()}"
            where.mkdir()
            stack.enter_context(served(where))
            cluster = Cluster(where, tmp_path, modules)
            cluster.settings = replace(cluster.settings, state=StateSettings(url=state))
            return cluster

        yield open_cluster


def rows(folder: Path) -> list[dict[str, Any]]:
    files = [file for file in folder.glob("part-*") if file.is_file()]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def await_rows(cluster: Cluster, folder: Path, count: int) -> None:
    until_s = time.monotonic() + WAIT_S
    while len(rows(folder)) < count:
        assert time.monotonic() < until_s, f"{len(rows(folder))} rows of {count}"
        time.sleep(0.02)


def saved(cluster: Cluster, id: JobId, to: object) -> str:
    made = onyx(cluster.settings, "savepoint", id, "--to", to, "--name", "noon")
    assert made.returncode == 0, made.stderr
    return f"{to}/noon"


def numbers(folder: Path) -> Counter[tuple[int, int]]:
    return Counter((row["n"], row["seen"]) for row in rows(folder / "numbers"))


def counts(folder: Path) -> Counter[tuple[int, int, int]]:
    return Counter((row["group"], row["from"], row["count"]) for row in rows(folder / "counts"))


NUMBERS = Counter((n, n // GROUPS + 1) for n in range(SEGMENTS))
COUNTS = Counter(
    (group, lower, WIDTH // GROUPS)
    for group in range(GROUPS)
    for lower in range(0, SEGMENTS, WIDTH)
)


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_two_jobs_give_what_the_saved_one_gives_from_the_point_on(
    opened: Callable[[str], Cluster], tmp_path: Path, fake_store: ObjectStore, where: str
) -> None:
    root = str(tmp_path) if where == "folder" else fake_store.url
    first, to = tmp_path / "first", f"{root}/savepoints"
    with opened(f"{tmp_path}/state-1") as one:
        one.start_workers(1, PEERS)
        id = one.submit(job(first, ratePerSecond=200))
        one.await_ready(id)
        await_rows(one, first / "numbers", 1)
        savepoint = saved(one, id, to)
        with opened(f"{root}/state-2") as other:
            copies = [tmp_path / "second", tmp_path / "third"]
            ids = [other.submit(beginning_with(savepoint, job(each, **ALL))) for each in copies]
            workers = other.start_workers(2, PEERS)
            other.await_ready(ids[0])
            workers[0].kill()
            for each in ids:
                other.await_completed(each)
        await_rows(one, first / "numbers", len(rows(first / "numbers")) + 100)
    assert set(numbers(first).values()) == {1}, "the saved job goes on as if nothing had been"
    assert all(seen == n // GROUPS + 1 for n, seen in numbers(first))
    for each in copies:
        found, windows = numbers(each), counts(each)
        assert 0 < len(found) < SEGMENTS, "it went on, and did not begin anew"
        assert found <= NUMBERS, "each once, with the state that it has in the first job"
        assert windows <= COUNTS
        assert (SEGMENTS - 1, SEGMENTS // GROUPS) in found
        assert found == numbers(copies[0])


def test_a_suspended_job_and_the_one_that_begins_with_its_savepoint_have_each_row_once(
    opened: Callable[[str], Cluster], tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with opened(f"{tmp_path}/state") as cluster:
        cluster.start_workers(1, PEERS)
        id = cluster.submit(job(first, ratePerSecond=200))
        cluster.await_ready(id)
        await_rows(cluster, first / "numbers", 300)
        cluster.client.suspend(id)
        savepoint = saved(cluster, id, tmp_path / "savepoints")
        cluster.client.kill(id)
        copy = cluster.submit(beginning_with(savepoint, job(second, **ALL)))
        cluster.await_completed(copy)
        again = onyx(cluster.settings, "savepoint", copy, "--to", tmp_path / "savepoints")
        assert "it has no state to save" in again.stderr
    assert numbers(first) + numbers(second) == NUMBERS
    assert counts(first) + counts(second) == COUNTS


def test_a_damaged_savepoint_ends_the_job_that_begins_with_it_and_reads_nothing(
    opened: Callable[[str], Cluster], tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with opened(f"{tmp_path}/state") as cluster:
        cluster.start_workers(1, PEERS)
        id = cluster.submit(job(first, ratePerSecond=200))
        cluster.await_ready(id)
        await_rows(cluster, first / "numbers", 300)
        savepoint = Path(saved(cluster, id, tmp_path / "savepoints"))
        cluster.client.kill(id)
        largest = max((savepoint / "blobs").iterdir(), key=lambda file: file.stat().st_size)
        largest.write_bytes(largest.read_bytes()[:-1])
        copy = cluster.submit(beginning_with(str(savepoint), job(second, **ALL)))
        cluster.until(lambda replica: copy in replica.killed_jobs, "it ends")
        failure = str(cluster.client.status(copy).exception)
        assert "is damaged: its digest is another one; use another savepoint" in failure
        assert not second.exists() or not rows(second / "numbers")


def on_spark(folder: Path, savepoint: str = "") -> dict[str, Any]:
    manifest = job(folder, ratePerSecond=300)
    spark = {"master": "local[1]", "sparkConf": {"spark.sql.shuffle.partitions": "2"}}
    spec = {**manifest["spec"], "engine": "spark", "spark": spark}
    return beginning_with(savepoint, {**manifest, "spec": spec}) if savepoint else {
        **manifest, "spec": spec,
    }  # fmt: skip


@pytest.mark.slow
def test_a_job_on_spark_begins_with_the_last_micro_batch_and_so_does_one_on_peers(
    opened: Callable[[str], Cluster], tmp_path: Path
) -> None:
    first, second, third = (tmp_path / each for each in ("first", "second", "third"))
    with opened(f"{tmp_path}/state-1") as one:
        one.start_workers(1, peers=2)
        id = one.submit(on_spark(first))
        await_rows(one, first / "numbers", 600)
        savepoint = saved(one, id, tmp_path / "savepoints")
        one.workers[0].kill()
    with opened(f"{tmp_path}/state-2") as other:
        other.start_workers(1, PEERS + 1)
        spark = other.submit(on_spark(second, savepoint))
        await_rows(other, second / "numbers", 600)
        other.client.kill(spark)
        other.await_completed(other.submit(beginning_with(savepoint, job(third, **ALL))))
    assert min(n for n, _ in numbers(second)) == min(n for n, _ in numbers(third)) > 0
    assert all(seen == n // GROUPS + 1 for n, seen in numbers(second))
    assert numbers(third) <= NUMBERS
    assert len(numbers(third)) == SEGMENTS - min(n for n, _ in numbers(third))
    assert counts(third) <= COUNTS


def test_what_is_in_a_journal_and_not_processed_is_processed_by_whoever_begins_with_it(
    tmp_path: Path,
) -> None:
    targets = channel(), channel()

    def taking(name: str, target: Channel, **more: Any) -> dict[str, Any]:
        return job_of(name, {
            "workflow": [["in", "out"]],
            "catalog": [
                {"name": "in", "type": "input", "plugin": "requests",
                 "options": {"partitions": 2, "partitionKey": "n"}, **more},
                {"name": "out", "type": "output", "plugin": "channel",
                 "options": {"channel": target.name}},
            ],
        })  # fmt: skip

    rows_in = [{"n": n} for n in range(60)]
    with with_test_env(4) as env:
        first = env.submit(taking("kept", targets[0], segmentsPerSecondMax=5, batchSize=1))
        until(env, lambda replica: replica.run(first).is_ready)
        (address, *_) = addresses_of(env.client.replica())
        with Appender(address, "kept", "in") as appender:
            appender.append(rows_in, ack="journal", id="march")
        place = SavepointPlace(str(tmp_path / "savepoints"))
        SavepointMaker(env.client, env.settings, place, print, lambda: 0).make(first, "noon")
        env.client.kill(first)
        again = beginning_with(f"{place.path}/noon", taking("again", targets[1]))
        second = env.submit(again)
        until(env, lambda replica: replica.run(second).is_ready)
        with Appender(address, "again", "in") as appender:
            appender.append(rows_in, id="march")
        env.client.drain(second)
        assert env.client.wait(second, WAIT_S)
    before, after = (sorted(row["n"] for row in taken(each)) for each in targets)
    assert sorted({*before, *after}) == list(range(60))
    assert len(after) == len({*after}), "the request is known by its id"
