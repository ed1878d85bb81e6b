"""Joins of two streams in queries and micro-batches, without a JVM: what comes twice, what fails,
what is late, and what else feeds one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.spark.inputs import feed
from tests.support.spark.query import Frames, publish_all, request_of, run_query
from tests.support.spark.stream import Worker, written

from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest
from onyx.spark.driver.request import QueryReply
from onyx.spark_query.folding import share_state

INPUTS = "tests.support.spark.inputs"
STAGES = "stages_of_streams"
Rows = list[dict[str, Any]]
ORDERS: Rows = [{"id": n % 3, "at": n, "n": n} for n in range(12)]
PAYMENTS: Rows = [{"of": n % 4, "at": n, "n": n} for n in range(12)]
JOIN = {"name": "both", "type": "join", "within": {"after": 2},
        "left": {"task": "orders", "key": "id", "at": "at"},
        "right": {"task": "payments", "key": "of", "at": "at", "prefix": "p_"}}  # fmt: skip
MEET = sorted(
    (left["n"], right["n"])
    for left in ORDERS
    for right in PAYMENTS
    if left["id"] == right["of"] and 0 <= right["at"] - left["at"] <= 2
)


def sequence(name: str, segments: Rows, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "input", "plugin": "sequence", "watermarkKey": "at",
            "options": {"segments": segments}, **more}  # fmt: skip


def output(name: str = "out") -> dict[str, Any]:
    return {"name": name, "type": "output", "plugin": "files", "options": {"path": name}}


def job(workflow: list[list[str]], *catalog: dict[str, Any]) -> Job:
    head = {"apiVersion": "onyx.dev/v1beta1", "kind": "OnyxJob", "metadata": {"name": "paid"}}
    spec = {"guarantee": "exactly-once", "workflow": workflow, "catalog": list(catalog)}
    return parse_manifest(json.dumps({**head, "spec": spec}).encode())


SIDES = [["orders", "both"], ["payments", "both"], ["both", "out"]]


def run(made: Job, folder: Path, modules: tuple[str, ...] = (), **frames: int) -> QueryReply:
    request = request_of(made, folder, modules)
    reply = run_query(request, Frames(**frames))
    assert reply.failure is None, reply.failure
    publish_all(request, reply)
    return reply


def pairs(folder: Path) -> list[tuple[int, int]]:
    return sorted((each["n"], each["p_n"]) for each in written(folder))


def test_rows_meet_once_though_spark_runs_each_task_again(tmp_path: Path) -> None:
    made = job(SIDES, sequence("orders", ORDERS), sequence("payments", PAYMENTS), JOIN, output())
    run(made, tmp_path, repeats=1)
    assert pairs(tmp_path) == MEET


@pytest.mark.parametrize("warm", [0, 1 << 20])
def test_what_a_source_repeats_meets_once_over_micro_batches(
    warm: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onyx.spark_query.sources.BATCH_SEGMENTS_MAX", 5)
    monkeypatch.setattr("onyx.spark_query.sources.NEWS_S", 0.0)
    monkeypatch.setattr(share_state, "WARM_BYTES_MAX", warm)
    inputs = []
    for name, rows in {"orders": ORDERS, "payments": PAYMENTS}.items():
        feed(tmp_path / name, {"a": [*rows, *rows]}, 100, ends=True)
        inputs.append({"name": name, "type": "input", "plugin": f"{INPUTS}:fed",
                       "options": {"feed": str(tmp_path / name)}})  # fmt: skip
    made = job(SIDES, *inputs, {**JOIN, "uniquenessKey": "n"}, output())
    worker = Worker(made, tmp_path, (INPUTS,))
    assert worker.run().failure is None
    assert len(worker.batches) > 3
    assert pairs(tmp_path) == MEET


def test_a_segment_without_a_key_or_a_time_is_a_dead_letter(tmp_path: Path) -> None:
    bad: Rows = [{"at": 1, "n": 100}, {"id": 1, "at": "soon", "n": 101}]
    edges = [*SIDES, ["orders", "bad"], ["both", "bad"]]
    orders = {**sequence("orders", [*ORDERS, *bad]), "deadLetter": "bad"}
    del orders["watermarkKey"]
    made = job(edges, orders, sequence("payments", PAYMENTS), {**JOIN, "deadLetter": "bad"},
               output(), output("bad"))  # fmt: skip
    reply = run(made, tmp_path)
    assert pairs(tmp_path) == MEET
    assert [reply.tasks[task].failed for task in ("orders", "both")] == [1, 1]


def test_a_row_alone_has_nulls_for_columns_of_which_its_bucket_gets_none(tmp_path: Path) -> None:
    form = {"batchFormat": "arrow"}
    join = {**JOIN, "how": "left"}
    made = job(SIDES, *({**each, **form} for each in (
        sequence("orders", [{"id": n, "at": n} for n in range(40)]),
        sequence("payments", [{"of": 7, "at": 8, "sum": 3}]), join, output())))  # fmt: skip
    run(made, tmp_path, buckets=8)
    assert sorted(each["id"] for each in written(tmp_path)) == list(range(40))
    columns = {"id", "at", "p_of", "p_at", "p_sum"}
    assert all(set(each) == columns for each in written(tmp_path))


def test_what_is_late_is_counted_and_goes_to_its_child(tmp_path: Path) -> None:
    (last,) = late = [{"id": 0, "at": 0, "n": 100}]
    orders = sequence("orders", [*ORDERS, {"id": 5, "at": 90, "n": 90}, last], batchSize=1)
    made = job([*SIDES, ["both", "late"]], orders, sequence("payments", PAYMENTS),
               {**JOIN, "lateTo": "late"}, output(), output("late"))  # fmt: skip
    reply = run(made, tmp_path)
    found = [json.loads(line) for path in (tmp_path / "late").glob("part-*")
             for line in path.read_text().splitlines()]  # fmt: skip
    assert found == late
    assert reply.tasks["both"].late == 1
    assert pairs(tmp_path) == MEET


def test_a_side_may_be_what_a_spark_stage_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{STAGES}.py").write_text("def same(frame):\n    return frame\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    stage = {"name": "orders", "type": "function", "sparkStage": f"{STAGES}:same",
             "options": {"path": str(tmp_path / "bundles")}}  # fmt: skip
    made = job([["read", "orders"], *SIDES], sequence("read", ORDERS), stage,
               sequence("payments", PAYMENTS), JOIN, output())  # fmt: skip
    run(made, tmp_path, (STAGES,))
    assert pairs(tmp_path) == MEET
