"""A kind of operator that no module of the product knows runs on peers and in queries of Spark."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.bench import Bench
from tests.support.operators.sums import KIND
from tests.support.spark.inputs import feed
from tests.support.spark.keyed_functions import same
from tests.support.spark.query import Frames, publish_all, request_of, run_query
from tests.support.spark.stream import Worker, written

from onyx.model.parsing.job import parse_manifest
from onyx.operators import table

INPUTS, FUNCTIONS = "tests.support.spark.inputs", "tests.support.spark.keyed_functions"
EVENTS = [{"key": "xyz"[n * n % 3], "v": n} for n in range(40)]
SUMS: Counter[str] = Counter()
for each in EVENTS:
    SUMS[each["key"]] += each["v"]
EXPECTED = [{"key": key, "sum": total} for key, total in sorted(SUMS.items())]


@pytest.fixture(autouse=True)
def new_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "KINDS", (KIND, *table.KINDS))


def spec(read: dict[str, Any], write: dict[str, Any]) -> dict[str, Any]:
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "add"], ["add", "out"]],
        "catalog": [
            {"name": "read", "type": "input", **read},
            {"name": "add", "type": "function", "fn": f"{FUNCTIONS}:same", "groupByKey": "key",
             "fluxPolicy": "continue", "state": {"sums": "value[int]"}},
            {"name": "out", "type": "output", **write},
        ],
    }  # fmt: skip


def on_spark(read: dict[str, Any]) -> Any:
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "sums"}}
    write = {"plugin": "files", "options": {"path": "out"}}
    return parse_manifest(
        json.dumps({**head, "spec": {"engine": "spark", **spec(read, write)}}).encode()
    )


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((each for each in rows if "sum" in each), key=lambda each: each["key"])


@pytest.mark.parametrize("rounds", [3, 7, 12])
def test_it_is_exact_on_peers_whenever_one_dies(rounds: int) -> None:
    read = {"plugin": "sequence", "batchSize": 5, "options": {"segments": EVENTS}}
    bench = Bench(
        spec(read, {"plugin": "blackhole"}), {f"{FUNCTIONS}:same": same}, peers={"add": 2}
    )
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("add", rounds % 2))
    bench.settle()
    assert bench.completed, bench.exceptions
    assert by_key(bench.written("out")) == EXPECTED


def test_it_runs_in_a_query_of_spark(tmp_path: Path) -> None:
    job = on_spark({"plugin": "sequence", "options": {"segments": EVENTS}})
    request = request_of(job, tmp_path, (FUNCTIONS,))
    reply = run_query(request, Frames(repeats=1))
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    assert by_key(written(tmp_path)) == EXPECTED


def test_it_goes_on_between_micro_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.spark_query.sources.BATCH_SEGMENTS_MAX", 7)
    monkeypatch.setattr("onyx.spark_query.sources.NEWS_S", 0.0)
    monkeypatch.setattr("onyx.spark_query.folding.share_state.WARM_BYTES_MAX", 0)
    feed(tmp_path / "feed", {"a": EVENTS}, 100, ends=True)
    read = {"plugin": f"{INPUTS}:fed", "options": {"feed": str(tmp_path / "feed")}}
    worker = Worker(on_spark(read), tmp_path, (INPUTS, FUNCTIONS))
    assert worker.run().failure is None
    assert len(worker.batches) > 3
    assert by_key(written(tmp_path)) == EXPECTED
