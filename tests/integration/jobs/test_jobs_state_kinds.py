"""Tables, joins and processors of a job, asked from outside: two worker processes, real gRPC."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.support.jobs.yaml_jobs import job_of
from tests.support.servers.cluster import Cluster
from tests.support.servers.processes import onyx

from onyx import api
from onyx.client.served_states import ServedStates
from onyx.gateway.states import AskedState, StateForm
from onyx.ids import JobId
from onyx.log.server.process import ZooKeeperServer
from onyx.settings import StateSettings

pytestmark = pytest.mark.server
ROUNDS_MAX = 100
STEPS = """
from onyx.processors import Processor


class Last(Processor):
    def init(self):
        self.last = {}

    def process_item(self, ordinal, item):
        self.last[item["id"]] = item["n"]
        return True

    def save_to_snapshot(self):
        entries = [(f"id {each}", {"n": n}) for each, n in self.last.items()]
        return all(self.outbox.offer_to_snapshot(*each) for each in entries)

    def restore_from_snapshot(self, inbox):
        for key, value in inbox.drain():
            self.last[int(key.removeprefix("id "))] = value["n"]


def make(n):
    return {"n": n, "id": n % 8, "day": n % 3}


def order(n):
    return {"order": n, "at": 1_000 * n}


def payment(n):
    return {"of": n, "at": 1_000 * n + 500, "paid": n * n}
"""
TABLES = job_of("looking-up", {
    "guarantee": "exactly-once",
    "workflow": [["read", "named"], ["named", "priced"], ["priced", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "generator", "maxPeers": 1,
         "options": {"fn": "kind_steps:make", "ratePerSecond": 100}},
        {"name": "named", "type": "function", "maxPeers": 1,
         "join": {"table": "names", "key": "id"}},
        {"name": "priced", "type": "function", "groupByKey": ["day", "id"], "nPeers": 2,
         "fluxPolicy": "continue",
         "join": {"table": "prices", "key": ["id", "day"], "at": "n"}},
        {"name": "write", "type": "output", "plugin": "blackhole", "maxPeers": 1},
    ],
})  # fmt: skip
NAMES = [{"id": n, "name": f"name {n}"} for n in range(8)]
PRICES = [
    {"product": n, "on": day, "since": since, "price": n * day + since}
    for n in range(8) for day in range(3) for since in (0, 100)
]  # fmt: skip


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Cluster]:
    modules = tmp_path / "modules" / "kind_steps.py"
    modules.parent.mkdir()
    modules.write_text(STEPS)
    with Cluster(zookeeper.address, tmp_path, modules) as cluster:
        state = StateSettings(url=str(tmp_path / "state"))
        cluster.settings = replace(cluster.settings, state=state)
        yield cluster


def with_tables(folder: Path) -> dict[str, Any]:
    def source(name: str, rows: Sequence[Any]) -> dict[str, Any]:
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {"name": name, "type": "table", "plugin": "files", "options": {"path": str(path)}}

    versions = {"key": ["product", "on"], "versionKey": "since", "partitioned": True}
    tables = [source("names", NAMES) | {"key": "id"}, source("prices", PRICES) | versions]
    spec = {**TABLES["spec"], "catalog": [*TABLES["spec"]["catalog"], *tables]}
    return {**TABLES, "spec": spec}


def over_http(served: ServedStates, job: JobId, name: str, select: api.Selection) -> Any:
    asked = AskedState(job, name, select, 10, False, 30.0, StateForm.JSON)
    return json.loads(asyncio.run(served.answer(asked)).body)["extents"]


@pytest.mark.slow
def test_tables_are_shown_by_key_and_version(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_workers(2, peers=6)
    job = cluster.submit(with_tables(tmp_path))
    cluster.await_ready(job)

    view = api.window_state(cluster.settings, job, "names", timeout_s=60)
    assert [(each.group, each.state) for each in view.extents] == [
        (row["id"], row) for row in NAMES
    ]
    some = api.Selection(key_from=2, key_to=4)
    (two, three) = api.window_pages(cluster.settings, job, "names", some, 1, durable=True)
    assert [each.extents[0].state["name"] for each in (two, three)] == ["name 2", "name 3"]
    assert two.record_batch()["state"].to_pylist() == [NAMES[2]]

    pages = list(api.window_pages(cluster.settings, job, "prices", extents_max=7))
    found = [each.state for page in pages for each in page.extents]
    assert sorted(found, key=PRICES.index) == PRICES
    at = api.Selection(key={"product": 5, "on": 2}, time_from=42, time_to=43)
    served = ServedStates(cluster.settings)
    (extent,) = over_http(served, job, "prices", at)
    served.close()
    assert (extent["from"], extent["to"], extent["state"]["price"]) == (0, 99, 10)

    file = tmp_path / "prices.arrow"
    prefix = json.dumps({"product": 5})
    reported = onyx(cluster.settings, "state", job, "prices", "--prefix", prefix, "--arrow", file)
    assert reported.returncode == 0, reported.stderr
    with pa.ipc.open_stream(str(file)) as stream:
        table = stream.read_all()
    assert table["key"].to_pylist()[0] == {"product": 5, "on": 0}
    assert table["state"].to_pylist() == [row for row in PRICES if row["product"] == 5]

    listed = onyx(cluster.settings, "state", job)
    assert "prices │ priced │ partitioned table with versions" in listed.stdout
    cluster.client.kill(job)
    ended = onyx(cluster.settings, "state", job, "names")
    assert ended.returncode == 2
    assert "read its source" in " ".join(ended.stderr.split())


JOINING = job_of("joining", {
    "guarantee": "exactly-once",
    "workflow": [["orders", "paid"], ["payments", "paid"], ["paid", "write"]],
    "catalog": [
        {"name": "orders", "type": "input", "plugin": "generator", "maxPeers": 1,
         "watermarkKey": "at", "options": {"fn": "kind_steps:order", "ratePerSecond": 200}},
        {"name": "payments", "type": "input", "plugin": "generator", "maxPeers": 1,
         "watermarkKey": "at", "options": {"fn": "kind_steps:payment", "ratePerSecond": 200}},
        {"name": "paid", "type": "join", "nPeers": 2,
         "within": {"before": [9, "days"], "after": [9, "days"]},
         "left": {"task": "orders", "key": "order", "at": "at"},
         "right": {"task": "payments", "key": "of", "at": "at"}},
        {"name": "write", "type": "output", "plugin": "blackhole", "maxPeers": 1},
    ],
})  # fmt: skip
BEGINNING = api.Selection(time_to=50_000)


def test_rows_of_a_join_are_shown_by_key_and_time_also_when_it_has_ended(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_workers(2, peers=7)
    job = cluster.submit(JOINING)
    cluster.await_ready(job)
    for _ in range(ROUNDS_MAX):
        pages = list(api.window_pages(cluster.settings, job, "paid", BEGINNING, 9, durable=True))
        told = {(each.group, each.lower): each.state for page in pages for each in page.extents}
        if len(told) == 100:
            break
    assert len(told) == 100
    assert len(pages) == 12
    for n in range(50):
        assert told[n, 1_000 * n] == {"left": [{"order": n, "at": 1_000 * n}], "right": []}
        row = {"of": n, "at": 1_000 * n + 500, "paid": n * n}
        assert told[n, 1_000 * n + 500] == {"left": [], "right": [row]}

    served = ServedStates(cluster.settings)
    found = over_http(served, job, "paid", api.Selection(key=7))
    served.close()
    assert [(each["from"], each["to"]) for each in found] == [(7_000, 7_000), (7_500, 7_500)]
    check_rows_as_columns(cluster, job, tmp_path)
    cluster.client.kill(job)
    view = api.window_state(cluster.settings, job, "paid", BEGINNING)
    assert {(each.group, each.lower): each.state for each in view.extents} == told
    check_rows_as_columns(cluster, job, tmp_path)


def check_rows_as_columns(cluster: Cluster, job: JobId, folder: Path) -> None:
    file = folder / "paid.arrow"
    reported = onyx(cluster.settings, "state", job, "paid", "--from-key", 3, "--to-key", 5,
                    "--arrow", file)  # fmt: skip
    assert reported.returncode == 0, reported.stderr
    with pa.ipc.open_stream(str(file)) as stream:
        table = stream.read_all()
    assert table["key"].to_pylist() == [3, 3, 4, 4]
    assert table["from"].type == pa.timestamp("ms", tz="UTC")
    assert table["state"].to_pylist()[1]["right"][0]["paid"] == 9


PROCESSING = job_of("processing", {
    "guarantee": "exactly-once",
    "workflow": [["read", "last"], ["last", "write"]],
    "catalog": [
        {"name": "read", "type": "input", "plugin": "generator", "maxPeers": 1,
         "options": {"fn": "kind_steps:make", "ratePerSecond": 400}},
        {"name": "last", "type": "function", "processor": "kind_steps:Last", "nPeers": 2,
         "groupByKey": "id", "fluxPolicy": "recover"},
        {"name": "write", "type": "output", "plugin": "blackhole", "maxPeers": 1},
    ],
})  # fmt: skip


@pytest.mark.slow
def test_what_a_processor_has_saved_is_shown_also_when_its_job_has_ended(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_workers(2, peers=4)
    job = cluster.submit(PROCESSING)
    cluster.await_ready(job)
    for _ in range(ROUNDS_MAX):
        pages = list(api.window_pages(cluster.settings, job, "last", extents_max=3, durable=True))
        told = {each.group: each.state["n"] for page in pages for each in page.extents}
        if len(told) == 8:
            break
    assert set(told) == {f"id {n}" for n in range(8)}
    assert [len(page.extents) for page in pages] == [3, 3, 2]
    assert all(n % 8 == int(key.removeprefix("id ")) for key, n in told.items())

    served = ServedStates(cluster.settings)
    (one,) = over_http(served, job, "last", api.Selection(key="id 5"))
    served.close()
    assert one["state"]["n"] >= told["id 5"]

    cluster.client.kill(job)
    file = tmp_path / "last.arrow"
    reported = onyx(cluster.settings, "state", job, "last", "--prefix", "id ", "--arrow", file)
    assert reported.returncode == 0, reported.stderr
    with pa.ipc.open_stream(str(file)) as stream:
        table = stream.read_all()
    assert table["key"].to_pylist() == sorted(told)
    kept = [each["n"] for each in table["state"].to_pylist()]
    assert all(n >= told[key] for key, n in zip(sorted(told), kept, strict=True))
