"""Loops in queries and micro-batches, within a fragment; without a JVM."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.spark.inputs import feed
from tests.support.spark.query import Frames, publish_all, request_of, run_query
from tests.support.spark.stream import Worker, written

from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest

INPUTS, SELF = "tests.support.spark.inputs", "tests.unit.spark_query.test_spark_query_loops"
NUMBERS = [{"of": n, "n": n, "steps": 0} for n in range(2, 80)]
Pairs = Counter[tuple[int, int]]


def step(segment: dict[str, Any]) -> dict[str, Any]:
    """A step of Collatz's."""
    n = segment["n"]
    return {**segment, "n": n // 2 if n % 2 == 0 else 3 * n + 1, "steps": segment["steps"] + 1}


def steps(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([*map(step, batch.to_pylist())], batch.schema)


def same(segment: Any) -> Any:
    return segment


def steps_of(n: int) -> int:
    count = 0
    while n != 1:
        n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
    return count


EXPECTED: Pairs = Counter((n, steps_of(n)) for n in range(2, 80))


def job(read: dict[str, Any], form: str = "dicts", laps_max: int = 500) -> Job:
    """read -> head -> tail -> count -> write, and from tail back to head what is not 1 yet."""
    columns = {"batchFormat": "arrow"} if form == "columns" else {}
    fn = f"{SELF}:{'steps' if columns else 'step'}"
    spec = {
        "engine": "spark",
        "guarantee": "exactly-once",
        "workflow": [["read", "head"], ["head", "tail"], ["tail", "by"], ["by", "write"],
                     ["tail", "letters"]],
        "catalog": [
            {"name": "read", "type": "input", **columns, **read},
            {"name": "head", "type": "function", "fn": fn, "batchSize": 10, **columns},
            {"name": "tail", "type": "function", "fn": f"{SELF}:same", "loopTo": "head",
             "lapsMax": laps_max, "deadLetter": "letters", **columns},
            {"name": "by", "type": "function", "fn": f"{SELF}:same", "groupByKey": "steps",
             "fluxPolicy": "continue"},
            {"name": "write", "type": "output", "plugin": "files", "options": {"path": "out"}},
            {"name": "letters", "type": "output", "plugin": "files", "options": {"path": "bad"}},
        ],
        "flowConditions": [
            {"from": ["tail"], "to": ["head"], "predicate": ["!=", "n", 1], "shortCircuit": True},
            {"from": ["tail"], "to": ["by"], "predicate": ["==", "n", 1]},
        ],
    }  # fmt: skip
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "round"}}
    return parse_manifest(json.dumps({**head, "spec": spec}).encode())


def bounded(folder: Path, made: Job) -> None:
    request = request_of(made, folder, (SELF,))
    reply = run_query(request, Frames(repeats=1))
    assert reply.failure is None, reply.failure
    publish_all(request, reply)


def found(folder: Path) -> Pairs:
    return Counter((each["of"], each["steps"]) for each in written(folder))


def letters(folder: Path) -> list[dict[str, Any]]:
    parts = [path.read_text() for path in (folder / "bad").glob("part-*")]
    return [json.loads(line) for part in parts for line in part.splitlines()]


SEQUENCE = {"plugin": "sequence", "options": {"segments": NUMBERS, "partitions": 2}}


@pytest.mark.parametrize("form", ["dicts", "columns"])
def test_segments_go_round_until_a_condition_lets_them_out(tmp_path: Path, form: str) -> None:
    """Some of them 118 times."""
    bounded(tmp_path, job(SEQUENCE, form))
    assert found(tmp_path) == EXPECTED


@pytest.mark.parametrize("form", ["dicts", "columns"])
def test_what_would_go_back_once_more_is_a_dead_letter(tmp_path: Path, form: str) -> None:
    """The first step is no lap: with 20 laps a number takes 21."""
    bounded(tmp_path, job(SEQUENCE, form, laps_max=20))
    short = Counter(each for each in EXPECTED if each[1] <= 21)
    assert found(tmp_path) == short
    assert len(letters(tmp_path)) == len(EXPECTED) - len(short)
    assert {each["segment"]["steps"] for each in letters(tmp_path)} == {21}
    assert "gone back to head as often as it may" in str(letters(tmp_path)[0])


@pytest.mark.parametrize("form", ["dicts", "columns"])
def test_a_loop_comes_to_its_end_within_a_micro_batch_whoever_dies(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onyx.spark_query.sources.BATCH_SEGMENTS_MAX", 7)
    monkeypatch.setattr("onyx.spark_query.sources.NEWS_S", 0.0)
    feed(tmp_path / "feed", {"a": NUMBERS[::2], "b": NUMBERS[1::2]}, 100, ends=True)
    fed = {"plugin": f"{INPUTS}:fed", "options": {"feed": str(tmp_path / "feed")}}
    worker = Worker(job(fed, form), tmp_path, (INPUTS, SELF))
    worker.run_whoever_dies(before=2, behind=4)
    assert found(tmp_path) == EXPECTED
