"""Segments that a Spark stage in the middle cannot have: they fail alone, and what is said about
failures in the job takes care of them. The stage is a fake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.bench import Bench
from tests.support.patience import rounds

import onyx.spark.middle.spool
from onyx.spark.child.request import StageRequest, Watch

Segment = dict[str, Any]
MIXED: list[Segment] = [
    {"n": 1}, {"n": "two"}, {"n": 3}, {"n": None}, {"n": 4.5, "at": [1]}, {"n": 5, "at": "text"},
    {"n": 6, "N": 6}, {"n": 7},
]  # fmt: skip
TAKEN, LEFT = [1.0, 3.0, None, 4.5, 7.0], ["two", 5, 6]
"""A column has one type: whole numbers beside a fraction are fractions."""


def same(request: StageRequest, timeout_s: float, watch: Watch) -> None:
    """As a stage that changes nothing."""
    tables = [pq.read_table(part) for frame in request.frames for part in frame.parts]
    Path(request.target).mkdir()
    table = pa.concat_tables(tables, promote_options="permissive")
    pq.write_table(table, Path(request.target) / "part-0.parquet")


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onyx.spark.middle.spool.StageSpool.__init__, "__defaults__", (same,))


def job(folder: Path, work: Segment, guarantee: str, **more: Any) -> dict[str, Any]:
    read = {"options": {"segments": MIXED, "partitions": 1}}
    output = {"type": "output", "plugin": "blackhole", "batchSize": 4}
    return {
        "guarantee": guarantee,
        "workflow": [["read", "work"], ["work", "write"], *more.pop("edges", [])],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 3, **read},
            {"name": "work", "type": "function", "sparkStage": "m:same", **work,
             "options": {"path": str(folder / "bundles"), "rollSegments": 2}},
            {"name": "write", **output},
            {"name": "bad", **output},
        ],
        **more,
    }  # fmt: skip


def run(spec: dict[str, Any], peers: dict[str, int] | None = None) -> Bench:
    bench = Bench(spec, {"m:same": lambda frame: frame, "m:always": lambda *_: True,
                         "m:told": lambda event, segment, error: {"said": str(error)}},
                  peers)  # fmt: skip
    for _ in rounds():
        bench.settle()
        if bench.completed or bench.exceptions:
            break
        bench.clock.advance(5.0)
    for task in bench.tasks.values():
        bench.stop(task)
    return bench


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_segment_that_does_not_fit_is_a_dead_letter(tmp_path: Path, guarantee: str) -> None:
    bench = run(job(tmp_path, {"deadLetter": "bad"}, guarantee))
    assert bench.exceptions == []
    assert bench.completed
    letters = bench.written("bad")
    assert [letter["segment"]["n"] for letter in letters] == LEFT
    said = [letter["error"]["message"] for letter in letters]
    assert "key 'n' cannot be in a DataFrame of the stage: it is of type string where" in said[0]
    assert "key 'at' cannot be in a DataFrame of the stage: it is of type string where" in said[1]
    assert "key 'N' cannot be in a DataFrame of the stage: it differs from 'n' only in" in said[2]
    assert sorted(str(row["n"]) for row in bench.written("write")) == sorted(map(str, TAKEN))


def test_a_condition_for_exceptions_takes_care_of_it(tmp_path: Path) -> None:
    condition = {"from": ["work"], "to": ["bad"], "predicate": "m:always", "shortCircuit": True,
                 "thrownException": True, "postTransform": "m:told"}  # fmt: skip
    bench = run(job(tmp_path, {}, "exactly-once", edges=[["work", "bad"]],
                    flowConditions=[condition, {"from": ["work"], "to": ["write"],
                                                "predicate": "m:always"}]))  # fmt: skip
    assert bench.exceptions == []
    assert bench.completed
    assert len(bench.written("bad")) == len(LEFT)
    assert len(bench.written("write")) == len(TAKEN)


@pytest.mark.parametrize("peers", [1, 3])
def test_peers_that_see_other_segments_first_agree(tmp_path: Path, peers: int) -> None:
    spec = job(tmp_path, {"deadLetter": "bad"}, "at-least-once")
    mixed = [{"n": "one"} if number % 2 else {"n": number} for number in range(12)]
    spec["catalog"][0] |= {"options": {"segments": mixed, "partitions": 3}, "batchSize": 1}
    bench = run(spec, {"work": peers})
    assert bench.exceptions == []
    assert bench.completed
    taken = {type(row["n"]) for row in bench.written("write")}
    left = {type(letter["segment"]["n"]) for letter in bench.written("bad")}
    assert sorted(map(str, [*taken, *left])) == sorted(map(str, [int, str]))
    assert len(bench.written("write")) == len(bench.written("bad")) == 6


def test_without_either_it_ends_the_job(tmp_path: Path) -> None:
    bench = run(job(tmp_path, {}, "at-least-once", edges=[["work", "bad"]]))
    (report,) = bench.exceptions
    assert "key 'n'" in report["detail"]
