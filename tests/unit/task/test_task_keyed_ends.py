"""A task that only keeps state ends a workflow: nothing comes behind it."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from tests.support.jobs.bench import Bench
from tests.unit.task.test_task_processors import Totals

from onyx.telemetry.catalog import UNMATCHED, Metric
from onyx.telemetry.interface import TaskMetrics

EVENTS = [{"n": n, "word": "abcdefg"[n * n % 7]} for n in range(60)]
COUNTS = Counter(event["word"] for event in EVENTS)


def count(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    state.seen = (state.seen or 0) + 1
    return segment  # which goes nowhere


def count_columns(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    counted = Counter(state.groups.to_pylist())
    before = state.seen.fill_null(0).to_pylist()
    state.seen = [before[n] + counted[n] for n in range(len(state.keys))]
    return batch


class Noting(Totals):
    """Notes at its end what it has counted."""

    noted: ClassVar[dict[str, int]] = {}

    def complete(self) -> bool:
        self.noted.update(self.counts)
        return super().complete()


TASKS: dict[str, dict[str, Any]] = {
    "dicts": {"fn": "m:count", "state": {"seen": "value[int]"}},
    "columns": {
        "fn": "m:count_columns", "state": {"seen": "value[int]"}, "batchFormat": "arrow",
    },
}  # fmt: skip


def bench_of(task: dict[str, Any], guarantee: str = "exactly-once", **more: Any) -> Bench:
    repeats = {"deduplicate": False} if guarantee == "at-least-once" else {}
    spec = {
        "guarantee": guarantee,
        "workflow": [["read", "keep"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 5,
             "options": {"segments": EVENTS, "partitions": 2}},
            {"name": "keep", "type": "function", "batchSize": 5, "groupByKey": "word",
             "fluxPolicy": "continue", **task, **repeats},
        ],
        **more,
    }  # fmt: skip
    functions = {"m:count": count, "m:count_columns": count_columns, "m:Noting": Noting}
    return Bench(spec, functions, {"keep": 2})


def kept(bench: Bench, name: str) -> dict[str, int]:
    """What the peers of the task hold."""
    tasks = [task for task in bench.tasks.values() if task.name == "keep"]
    found: dict[str, int] = {}
    for task in tasks:
        held = task.allocation.keeper.operator
        found |= {extent.group: extent.state for extent in held.query(name)}
    return found


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_function_with_state_ends_a_job(task: dict[str, Any], guarantee: str) -> None:
    bench = bench_of(task, guarantee)
    bench.settle()
    assert bench.completed
    assert kept(bench, "keep.seen") == COUNTS


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("rounds", [0, 15, 30, 45])
def test_its_state_is_exact_when_peers_die_come_and_go(task: dict[str, Any], rounds: int) -> None:
    bench = bench_of(task)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("keep"))
    for peers in (3, 1):
        for _ in range(6):
            bench.round()
        bench.rewire(keep=peers)
    bench.settle()
    assert bench.completed
    assert kept(bench, "keep.seen") == COUNTS


@pytest.mark.parametrize("rounds", [0, 20, 40])
def test_a_processor_ends_a_job(rounds: int) -> None:
    Noting.noted.clear()
    bench = bench_of({"processor": "m:Noting"})
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("keep"))
    bench.settle()
    assert bench.completed
    assert Noting.noted == COUNTS


def test_a_processor_ends_a_job_that_is_at_most_once() -> None:
    bench = bench_of({"processor": "m:Noting"}, "at-most-once")
    bench.settle()
    assert bench.completed


def test_what_it_returns_goes_nowhere_and_is_not_counted_as_lost() -> None:
    added: list[Metric] = []

    class Counted(TaskMetrics):
        def add(self, metric: Metric, amount: float = 1) -> None:
            added.append(metric)

    bench = bench_of(TASKS["dicts"])
    bench.metrics = lambda *_: Counted()  # type: ignore[method-assign]
    bench.settle()
    assert bench.completed
    assert UNMATCHED not in added
