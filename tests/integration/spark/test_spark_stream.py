"""Jobs over inputs without end on real Spark, with and without windows: a worker that is
killed, an executor of a Connect server, and questions about what windows hold."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from tests.support.servers.cluster import Cluster
from tests.support.servers.spark_servers import connect_server_with_executors
from tests.support.spark.query import publish_batch, request_of
from tests.support.spark.session import MASTER

import onyx.spark
from onyx import api
from onyx.client.measures import measures
from onyx.errors import Unavailable, UserError
from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer
from onyx.model.parsing.job import parse_manifest
from onyx.reports.measures import TaskMeasures
from onyx.spark.driver.request import QueryBatch
from onyx.spark_query.run import answer

pytestmark = pytest.mark.server
PATIENCE_S = 300.0
CONF = {"spark.sql.shuffle.partitions": "2"}
PACKAGE = str(Path(onyx.spark.__file__).parents[2])
MODULE = "ticking_on_spark"
USER_CODE = '''
import pathlib, time
from onyx.plugins.bases import IndexedReader
from onyx.plugins.protocol import Behind, Input
from onyx.processors import Processor

class Ticks(Input):
    """Numbers of two partitions, so many a batch, as `limit` allows."""
    cooperative = True

    def __init__(self, context):
        self.limit = pathlib.Path(context.options["limit"])

    def partitions(self):
        return ["a", "b"]

    def open(self, partition, cursor):
        def fetch(first, most):
            allowed = int(self.limit.read_text())
            return [{"at": partition, "n": n} for n in range(first, min(allowed, first + most))]
        return IndexedReader(cursor.position, fetch, lambda: 60)

    def behind(self, cursors):
        return {partition: Behind(60 - at.position) for partition, at in cursors.items()}

    def close(self):
        pass

def ticks(context):
    return Ticks(context)

def double(segment):
    return {**segment, "n": segment["n"] * 2}

class Threes(Processor):
    """The same of three at a time; others stay in the inbox."""

    def process(self, ordinal, inbox):
        if len(inbox) > 2 and all(self.try_emit(double(each)) for each in list(inbox)[:3]):
            for _ in range(3):
                inbox.remove()

def row(event, window, trigger, state_event, state):
    return {"at": state_event["group_key"], "from": state_event["lower_bound"], "count": state}
'''
EXPECTED = sorted((at, n * 2) for at in "ab" for n in range(60))
COUNTS = sorted((at, first, 15) for at in "ab" for first in range(0, 60, 15))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / f"{MODULE}.py").write_text(USER_CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    allow(tmp_path, 20)
    return tmp_path


def allow(folder: Path, limit: int) -> None:
    (folder / "limit.new").write_text(str(limit))
    (folder / "limit.new").replace(folder / "limit")


def manifest(folder: Path, master: str = MASTER) -> dict[str, Any]:
    return {
        "apiVersion": "onyx.dev/v1beta1",
        "kind": "OnyxJob",
        "metadata": {"name": "ticks"},
        "spec": {
            "engine": "spark",
            "guarantee": "exactly-once",
            "spark": {"master": master, "sparkConf": CONF},
            "workflow": [
                ["read", "double"], ["double", "write"], ["read", "count"], ["count", "sums"],
            ],
            "catalog": [
                {"name": "read", "type": "input", "plugin": f"{MODULE}:ticks",
                 "watermarkKey": "n", "options": {"limit": str(folder / "limit")}},
                {"name": "double", "type": "function", "fn": f"{MODULE}:double"},
                {"name": "write", "type": "output", "plugin": "files",
                 "options": {"path": str(folder / "out"), "format": "jsonl", "rollSeconds": 1}},
                {"name": "count", "type": "reduce", "groupByKey": "at", "fluxPolicy": "continue"},
                {"name": "sums", "type": "output", "plugin": "files",
                 "options": {"path": str(folder / "sums"), "format": "jsonl", "rollSeconds": 1}},
            ],
            "windows": [{"id": "w", "task": "count", "type": "fixed", "windowKey": "n",
                         "range": [15, "milliseconds"], "aggregation": "count"}],
            "triggers": [{"windowId": "w", "type": "watermark", "postEvictor": ["all"],
                          "emit": f"{MODULE}:row"}],
        },
    }  # fmt: skip


def rows(folder: Path) -> list[tuple[str, int]]:
    texts = [path.read_text() for path in (folder / "out").glob("part-*")]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    return sorted((each["at"], each["n"]) for each in found)


def counts(folder: Path) -> list[tuple[str, int, int]]:
    texts = [path.read_text() for path in (folder / "sums").glob("part-*")]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    return sorted((each["at"], each["from"], each["count"]) for each in found)


@pytest.mark.slow
def test_on_a_connect_server_rows_come_once_though_an_executor_and_the_worker_die(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server runs micro-batches in executors, which have the package and nothing else of the
    worker; who takes over has a session of its own. It wants a token."""
    server = connect_server_with_executors(
        folder / "server", PYTHONPATH=PACKAGE, SPARK_CONNECT_AUTHENTICATE_TOKEN="a-word"
    )
    place = f"sc://127.0.0.1:{server.port}"
    (folder / "token").write_text("a-word")
    job = parse_manifest(json.dumps(manifest(folder, place)).encode())
    request = request_of(job, folder, (MODULE,), master=place, spark_conf=CONF)
    batches: list[QueryBatch] = []

    def publish(batch: QueryBatch) -> None:
        if batch.number == 3 and request.attempt != "second":
            raise Unavailable("the worker died")
        batches.append(batch)
        publish_batch(request, batch)
        allow(folder, 20 + 20 * batch.number)
        if batch.number == 1:
            os.kill(server.executors()[0], signal.SIGKILL)

    try:
        refused = answer(request, lambda line: None, publish=publish).failure
        assert refused is not None
        assert refused.by_user
        assert "wants a token that this worker does not show" in refused.message
        monkeypatch.setenv("ONYX_SPARK_MASTER", place)
        monkeypatch.setenv("ONYX_SPARK_TOKEN_FILE", str(folder / "token"))
        failure = answer(request, lambda line: None, publish=publish).failure
        assert failure is not None
        assert failure.message == "the worker died"
        request = msgspec.structs.replace(
            request,
            attempt="second",
            batches=2,
            positions=batches[-1].positions,
            held=batches[-1].held,
        )
        reply = answer(request, lambda line: None, publish=publish)
    finally:
        server.kill()
    assert reply.failure is None, reply.failure
    assert rows(folder) == EXPECTED
    assert counts(folder) == COUNTS
    assert [each.number for each in batches] == [1, 2, 3]


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, folder: Path) -> Iterator[Cluster]:
    shutil.rmtree(folder / "out", ignore_errors=True)
    with Cluster(zookeeper.address, folder, folder / f"{MODULE}.py") as cluster:
        cluster.start_workers(2, 1)
        yield cluster


def await_rows(folder: Path, count: int) -> None:
    for _ in range(int(PATIENCE_S * 10)):
        if len(rows(folder)) >= count:
            return
        Event().wait(0.1)
    raise AssertionError(f"{count} rows never came, only {len(rows(folder))}")


def await_behind(cluster: Cluster, job: JobId, segments: int) -> None:
    """Until the worker has asked the source behind the last commit."""
    found: dict[str, TaskMeasures] = {}
    for _ in range(int(PATIENCE_S * 10)):
        measured = measures(cluster.settings, job)
        found = {each.task: each for each in measured.tasks}
        read = found["read"].input if found else None
        if read is not None and read.segments_behind == segments:
            assert (read.partitions, read.in_flight, read.unknown) == (2, 0, "")
            state = found["count"].state
            assert state is not None
            assert state.bytes > 0
            assert found["count"].watermark_ms is not None
            edges = [(each.source, each.target) for each in measured.edges]
            assert edges == sorted(map(tuple, manifest(Path())["spec"]["workflow"]))
            return
        Event().wait(0.1)
    raise AssertionError(f"{segments} segments were never behind: {found}")


def held(cluster: Cluster, job: JobId) -> dict[tuple[str, int], int]:
    """What the window holds, by pages of one extent."""
    pages = list(api.window_pages(cluster.settings, job, "w", extents_max=1, durable=True))
    assert all(len(page.extents) == 1 for page in pages[:-1])
    return {(each.group, int(each.lower)): each.state for page in pages for each in page.extents}


@pytest.mark.slow
def test_when_its_worker_is_killed_another_one_goes_on_behind_the_last_micro_batch(
    cluster: Cluster, folder: Path
) -> None:
    made = manifest(folder)
    made["spec"]["catalog"][1] = {"name": "double", "type": "function",
                                  "processor": f"{MODULE}:Threes"}  # fmt: skip
    job = cluster.submit(made)
    await_rows(folder, 39)  # one of 40 is left in the inbox, and goes on with the next worker
    assert held(cluster, job) == {("a", 15): 5, ("b", 15): 5}
    await_behind(cluster, job, 80)
    only = api.window_state(cluster.settings, job, "w", api.Selection(key="b"))
    assert [(each.group, each.state) for each in only.extents] == [("b", 5)]
    (peer,) = cluster.replica.run(job).allocation["spark"]  # type: ignore[index]
    worker = cluster.worker_of(peer)
    group = cluster.group_of(worker)
    allow(folder, 40)
    Event().wait(0.7)  # in the middle of the next micro-batch, or before or behind it
    worker.kill()
    cluster.await_gone([group])
    allow(folder, 60)
    cluster.await_completed(job, PATIENCE_S)
    assert rows(folder) == EXPECTED
    assert counts(folder) == COUNTS
    with pytest.raises(UserError, match="it was never written, or is removed, because the job has"):
        held(cluster, job)


@pytest.mark.slow
def test_a_job_goes_from_engine_to_engine_and_each_row_comes_once(
    zookeeper: ZooKeeperServer, folder: Path
) -> None:
    on_spark = manifest(folder)
    on_peers = {**on_spark, "spec": {**on_spark["spec"], "engine": "peers"}}
    del on_peers["spec"]["spark"]
    with Cluster(zookeeper.address, folder, folder / f"{MODULE}.py") as cluster:
        cluster.start_workers(3, 5)
        first = cluster.submit(on_spark)
        await_rows(folder, 40)
        second = cluster.submit_after(on_spark, first)
        kill_worker_of(cluster, second, "spark")  # while it takes over, or before or behind it
        allow(folder, 35)
        await_rows(folder, 70)
        assert held(cluster, second) == {("a", 30): 5, ("b", 30): 5}
        third = cluster.submit_after(on_peers, second)
        cluster.await_ready(third)
        allow(folder, 40)
        kill_worker_of(cluster, third, "count", but="read")
        await_rows(folder, 80)
        assert held(cluster, third) == {("a", 30): 10, ("b", 30): 10}
        cluster.start_workers(1, 5)
        allow(folder, 50)
        kill_worker_of(cluster, third, "count", but="read", gone=False)
        last = cluster.submit_after(on_spark, third)  # busy, and allocated anew while it is paused
        assert cluster.entries_named("pause-job")
        allow(folder, 60)
        cluster.await_completed(last, PATIENCE_S)
    assert rows(folder) == EXPECTED
    assert counts(folder) == COUNTS


def kill_worker_of(
    cluster: Cluster, job: JobId, task: str, but: str = "", gone: bool = True
) -> None:
    """The worker of one of its peers dies, if possible one that has none of the task `but`; `gone`:
    and is waited for."""
    peers = cluster.until(
        lambda replica: replica.run(job).allocation.get(task),  # type: ignore[call-overload]
        f"{task} of {job} has a peer",
    )
    spared = cluster.replica.run(job).allocation.get(but, ())  # type: ignore[call-overload]
    others = {id(cluster.worker_of(peer)) for peer in spared}
    workers = [cluster.worker_of(peer) for peer in peers]
    worker = next((each for each in workers if id(each) not in others), workers[0])
    group = cluster.group_of(worker)
    worker.kill()
    if gone:
        cluster.await_gone([group])
