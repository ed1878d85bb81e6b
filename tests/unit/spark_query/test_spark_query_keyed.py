"""Functions with state by key in queries and micro-batches, without a JVM: the same rows as on
peers, each once, whoever dies."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.bench import Bench
from tests.support.spark import keyed_functions
from tests.support.spark.inputs import feed
from tests.support.spark.query import Frames, publish_all, request_of, run_query
from tests.support.spark.stream import Worker, written

from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.spark_query.folding import share_state

INPUTS, FUNCTIONS = "tests.support.spark.inputs", "tests.support.spark.keyed_functions"
EVENTS = [{"key": "xyz"[n * n % 3], "at": 3 * n, "v": n} for n in range(40)]
TRACK: dict[str, Any] = {
    "fn": f"{FUNCTIONS}:track", "onTimer": f"{FUNCTIONS}:due",
    "state": {"count": "value[int]", "last": "list[int]", "by": "map[str, int]"},
}  # fmt: skip
COUNT: dict[str, Any] = {
    "fn": f"{FUNCTIONS}:counted", "batchFormat": "arrow", "state": {"count": "value[int]"},
}  # fmt: skip
ENDED: dict[str, Any] = {**TRACK, "onTimer": f"{FUNCTIONS}:ended"}


def spec(read: dict[str, Any], task: dict[str, Any]) -> dict[str, Any]:
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "track"], ["track", "out"], ["track", "bad"]],
        "catalog": [
            {"name": "read", "type": "input", "watermarkKey": "at", **read},
            {"name": "track", "type": "function", "groupByKey": "key", "fluxPolicy": "continue",
             "deadLetter": "bad", **task},
            {"name": "out", "type": "output", "plugin": "files", "options": {"path": "out"}},
            {"name": "bad", "type": "output", "plugin": "files", "options": {"path": "bad"}},
        ],
    }  # fmt: skip


def job(read: dict[str, Any], task: dict[str, Any]) -> Job:
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "tracked"}}
    made = {**head, "spec": {"engine": "spark", **spec(read, task)}}
    return parse_manifest(json.dumps(made).encode())


def fed(folder: Path, segments: list[dict[str, Any]] = EVENTS) -> dict[str, Any]:
    feed(folder / "feed", {"a": segments}, 100, ends=True)
    return {"plugin": f"{INPUTS}:fed", "options": {"feed": str(folder / "feed")}}


def on_peers(task: dict[str, Any]) -> Counter[str]:
    read = {"plugin": "sequence", "options": {"segments": EVENTS, "partitions": 1}}
    made = spec(read, task)
    for entry in made["catalog"][2:]:
        entry["plugin"] = "blackhole"
        del entry["options"]
    functions = {
        f"{FUNCTIONS}:{name}": function for name, function in vars(keyed_functions).items()
    }
    bench = Bench(made, functions, peers={"track": 2})
    bench.settle()
    assert bench.completed, bench.exceptions
    return texts(bench.written("out"))


def texts(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(each, sort_keys=True) for each in rows)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.spark_query.sources.BATCH_SEGMENTS_MAX", 7)
    monkeypatch.setattr("onyx.spark_query.sources.NEWS_S", 0.0)


@pytest.mark.parametrize("task", [TRACK, COUNT, ENDED], ids=["dicts", "columns", "end of time"])
def test_a_bounded_query_gives_the_rows_of_peers(task: dict[str, Any], tmp_path: Path) -> None:
    read = {"plugin": "sequence", "options": {"segments": EVENTS}}
    request = request_of(job(read, task), tmp_path, (FUNCTIONS,))
    reply = run_query(request, Frames(repeats=1))
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    assert texts(written(tmp_path)) == on_peers(task)


@pytest.mark.parametrize("task", [TRACK, COUNT, ENDED], ids=["dicts", "columns", "end of time"])
@pytest.mark.parametrize("warm", [0, 1 << 20])
@pytest.mark.usefixtures("small_batches")
def test_micro_batches_give_the_rows_of_peers_whoever_dies(
    task: dict[str, Any], warm: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_state, "WARM_BYTES_MAX", warm)
    worker = Worker(job(fed(tmp_path), task), tmp_path, (INPUTS, FUNCTIONS))
    worker.run_whoever_dies(before=2, behind=4)
    assert texts(written(tmp_path)) == on_peers(task)


@pytest.mark.usefixtures("small_batches")
def test_what_a_source_repeats_is_applied_once(tmp_path: Path) -> None:
    twice = [each for each in EVENTS for _ in range(2)]
    task = {**TRACK, "uniquenessKey": "v"}
    worker = Worker(job(fed(tmp_path, twice), task), tmp_path, (INPUTS, FUNCTIONS))
    assert worker.run().failure is None
    assert texts(written(tmp_path)) == on_peers(TRACK)


@pytest.mark.usefixtures("small_batches")
def test_segments_that_fail_are_dead_letters_and_change_nothing(tmp_path: Path) -> None:
    worker = Worker(job(fed(tmp_path), TRACK), tmp_path, (INPUTS, FUNCTIONS))
    assert worker.run().failure is None
    lines = [
        json.loads(line)
        for part in (tmp_path / "bad").glob("part-*")
        for line in part.read_text().splitlines()
    ]
    assert [each["segment"]["v"] for each in lines] == [13]
    assert not any(13 in each.get("last", ()) for each in written(tmp_path))
