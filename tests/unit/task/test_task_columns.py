"""Jobs of columns: no dicts are made, both kinds of tasks mix, rows that do not fit fail."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support.jobs.bench import Bench

from onyx.flow.columns import record_batch

ROWS = [
    {"n": n, "key": f"k{n % 3}", "price": n / 4, "at": 1_000 * n, "tags": ["a", "b"][: n % 3]}
    for n in range(40)
]
ARROW = {"batchFormat": "arrow", "batchSize": 7}


def add(step: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    place = batch.schema.get_field_index("n")
    return batch.set_column(place, "n", pc.add(batch["n"], step))


def even(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(pc.bit_wise_and(pc.field("n"), 1), 0))


def cheap(event: Any, batch: pa.RecordBatch) -> pa.Array:
    return pc.less(batch["price"], 5.0)


def emit(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> Any:
    return {"window": window.id, "key": state_event["group_key"], "state": state}


FUNCTIONS = {
    "m:add": add,
    "m:even": even,
    "m:cheap": cheap,
    "m:emit": emit,
    "m:squared": lambda segment: {**segment, "n": segment["n"] ** 2},
}


@pytest.fixture
def no_dicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes dicts of columns fails, whatever name it has for the function."""

    def forbidden(_: Any) -> Any:
        raise AssertionError("a dict is made on a path of columns")

    monkeypatch.setattr(record_batch.to_dicts, "__code__", forbidden.__code__)


@pytest.fixture
def parquet(tmp_path: Path) -> str:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet", row_group_size=16)
    return str(tmp_path / "rows.parquet")


def finish(bench: Bench) -> Bench:
    bench.settle()
    close(bench)
    assert bench.exceptions == []
    assert bench.completed
    return bench


def close(bench: Bench) -> None:
    for task in bench.tasks.values():
        bench.stop(task)


def job(path: str, *tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """read -> the tasks, one after the other."""
    read = {"name": "read", "type": "input", "plugin": "files", "options": {"path": path}, **ARROW}
    names = ["read", *(task["name"] for task in tasks)]
    workflow = [list(edge) for edge in pairwise(names)]
    return {"workflow": workflow, "catalog": [read, *tasks], **spec}


def function(name: str, fn: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "function", "fn": fn, **ARROW, **more}


WRITE = {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 7}


@pytest.mark.usefixtures("no_dicts")
@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
@pytest.mark.parametrize("short_circuit", [True, False], ids=["in one process", "over the wire"])
def test_functions_conditions_and_outputs_make_no_dicts(parquet, guarantee, short_circuit):
    spec = job(
        parquet,
        function("add", "m:add", params=["step"], options={"step": 2}),
        function("even", "m:even"),
        {**WRITE, "plugin": "blackhole"},
        guarantee=guarantee if guarantee != "exactly-once" else "at-least-once",
        flowConditions=[
            {"from": "even", "to": ["write"], "batchFormat": "arrow",
             "predicate": ["and", ["in", "key", ["k0", "k1"]], "m:cheap"]},
        ],
    )  # fmt: skip
    bench = finish(Bench(spec, FUNCTIONS, short_circuit=short_circuit))
    wanted = [
        {**row, "n": row["n"] + 2}
        for row in ROWS
        if row["n"] % 2 == 0 and row["key"] != "k2" and row["price"] < 5
    ]
    assert bench.written("write") == wanted
    assert {kind for kept in bench.outputs["write"] for kind in kept.batches} == {"columns"}


@pytest.mark.usefixtures("no_dicts")
@pytest.mark.parametrize(
    ("window", "states"),
    [
        ({"type": "global", "aggregation": "count"}, {"k0": 14, "k1": 13, "k2": 13}),
        (
            {"type": "global", "aggregation": ["sum", "n"]},
            {key: sum(row["n"] for row in ROWS if row["key"] == key) for key in ("k0", "k1", "k2")},
        ),
        (
            {"type": "fixed", "aggregation": ["max", "price"], "init": 0, "windowKey": "at",
             "range": [1, "hours"]},
            {key: max(row["price"] for row in ROWS if row["key"] == key)
             for key in ("k0", "k1", "k2")},
        ),
        (
            {"type": "session", "aggregation": ["min", "n"], "init": 100, "windowKey": "at",
             "timeoutGap": [1, "minutes"]},
            {"k0": 0, "k1": 1, "k2": 2},
        ),
    ],
    ids=lambda value: str(value.get("type", "")) if isinstance(value, dict) else None,
)  # fmt: skip
@pytest.mark.parametrize("peers", [1, 2])
def test_windows_over_groups_make_no_dicts(parquet, window, states, peers):
    gather = {
        "name": "gather", "type": "reduce", "groupByKey": "key", "fluxPolicy": "continue",
        "batchSize": 7,
    }  # fmt: skip
    trigger = {
        "id": "end", "windowId": "w", "type": "timer", "period": [1, "days"],
        "refinement": "accumulating", "emit": "m:emit",
    }  # fmt: skip
    spec = job(
        parquet,
        gather,
        WRITE,
        guarantee="exactly-once",
        windows=[{"id": "w", "task": "gather", **window}],
        triggers=[trigger],
    )
    bench = finish(Bench(spec, FUNCTIONS, peers={"gather": peers}, short_circuit=False))
    assert {row["key"]: row["state"] for row in bench.written("write")} == states


@pytest.mark.parametrize("short_circuit", [True, False])
def test_tasks_of_dicts_and_of_columns_follow_each_other(parquet, short_circuit):
    spec = job(
        parquet,
        function("squared", "m:squared", batchFormat="dicts"),
        function("even", "m:even"),
        WRITE,
    )
    bench = finish(Bench(spec, FUNCTIONS, short_circuit=short_circuit))
    wanted = [{**row, "n": row["n"] ** 2} for row in ROWS if row["n"] % 2 == 0]
    assert bench.written("write") == wanted


@pytest.mark.usefixtures("no_dicts")
def test_a_hook_that_sees_no_batch_leaves_an_output_its_columns(parquet):
    hooks = {"before_task_start": lambda event, lifecycle: None}
    spec = job(parquet, WRITE, lifecycles=[{"task": "all", "calls": "m:hooks"}])
    bench = finish(Bench(spec, {"m:hooks": lambda: hooks}))
    assert bench.written("write") == ROWS


def test_a_hook_that_sees_batches_gets_dicts_where_the_task_has_dicts(parquet):
    seen: list[Any] = []
    hooks = {"after_read_batch": lambda event, lifecycle: seen.extend(event["batch"])}
    spec = job(parquet, WRITE, lifecycles=[{"task": "write", "calls": "m:hooks"}])
    bench = finish(Bench(spec, {"m:hooks": lambda: hooks}))
    assert seen == bench.written("write") == ROWS


def test_rows_that_a_schema_does_not_hold_go_to_the_dead_letter():
    segments = [{"n": 1}, {"n": "two"}, {"n": 3, "m": 1}, {"n": 4}]
    spec = {
        "workflow": [["read", "work"], ["work", "write"], ["work", "dead"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 3,
             "options": {"segments": segments}},
            function("work", "m:even", schema={"n": "int64"}, deadLetter="dead"),
            WRITE,
            {**WRITE, "name": "dead"},
        ],
    }  # fmt: skip
    bench = finish(Bench(spec, FUNCTIONS))
    assert bench.written("write") == [{"n": 4}]
    dead = bench.written("dead")
    letters = {str(each["segment"]["n"]): each["error"]["message"] for each in dead}
    assert letters.keys() == {"two", "3"}
    assert "key 'n' holds a str" in letters["two"]
    assert "key 'm' is not in the task's schema" in letters["3"]


def test_a_function_that_breaks_the_rule_of_rows_ends_the_job_with_the_rule(parquet):
    spec = job(parquet, function("work", "m:dropped"), WRITE)
    functions = {"m:dropped": lambda batch: batch.select(["n"]).slice(1)}
    bench = Bench(spec, functions)
    bench.settle()
    close(bench)
    (report,) = {str(each) for each in bench.exceptions}
    assert "__row__" in report


def test_several_children_share_columns_and_change_nothing_of_each_other(parquet):
    spec = job(parquet, function("add", "m:add", params=["step"], options={"step": 1}), WRITE)
    spec["workflow"] += [["read", "write"]]
    bench = finish(Bench(spec, FUNCTIONS))
    found = Counter(row["n"] for row in bench.written("write"))
    assert found == Counter([row["n"] for row in ROWS] + [row["n"] + 1 for row in ROWS])
