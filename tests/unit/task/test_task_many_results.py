"""Tasks with a state log that make many results of one segment: they are sent by thousands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.bench import Bench

from onyx.processors import Processor, traverse

MANY = 5_000
"""More than a batch has."""
EVENTS = [{"word": "a", "n": n} for n in range(3)]
Spec = dict[str, Any]


def results(n: int, many: int = MANY) -> list[dict[str, Any]]:
    return [{"n": n, "i": i} for i in range(many)]


def keyed(segment: dict[str, Any], state: Any) -> list[dict[str, Any]]:
    state.seen = (state.seen or 0) + 1
    return results(segment["n"])


class Expands(Processor):
    """Makes many of one."""

    def process_item(self, ordinal: int, item: Any) -> bool:
        self.left = getattr(self, "left", None) or traverse(results(item["n"]))
        if not self.emit_from(self.left):
            return False
        self.left = None
        return True


class ExpandsColumns(Processor):
    def process_item(self, ordinal: int, item: pa.RecordBatch) -> bool:
        made = [each for n in item["n"].to_pylist() for each in results(n)]
        return self.try_emit(pa.RecordBatch.from_pylist(made))


STATE = {"fn": "m:make", "groupByKey": "word", "fluxPolicy": "continue",
         "state": {"seen": "value[int]"}}  # fmt: skip
PROCESSOR = {"processor": "m:make"}
ARROW = {"batchFormat": "arrow"}
KINDS: dict[str, tuple[Callable[..., Any], Spec]] = {
    "state": (keyed, STATE),
    "processor": (Expands, PROCESSOR),
    "processor over columns": (ExpandsColumns, {**PROCESSOR, **ARROW}),
}


def bench_of(
    make: Callable[..., Any], task: Spec, guarantee: str = "exactly-once", **more: Any
) -> Bench:
    repeats = {"deduplicate": False} if guarantee != "exactly-once" and "state" in task else {}
    spec = {
        "guarantee": guarantee,
        "workflow": [["read", "make"], ["make", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence",
             "options": {"segments": EVENTS, "partitions": 1}},
            {"name": "make", "type": "function", **task, **repeats, **more},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 10_000},
        ],
    }  # fmt: skip
    return Bench(spec, {"m:make": make})


def sizes_of(bench: Bench) -> list[int]:
    """How many segments each batch has that the task sends, as it sends them."""
    sizes: list[int] = []
    bench.start()
    emissions = bench.task("make").allocation.keeper.emissions
    read = emissions.read

    def noted(most: int) -> Any:
        found = read(most)
        sizes.extend(len(each) for _, each in found)
        return found

    emissions.read = noted
    return sizes


@pytest.mark.parametrize("guarantee", ["at-most-once", "exactly-once"])
@pytest.mark.parametrize("batch", [{}, {"batchSize": 1}])
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_sent_by_thousands_however_few_segments_are_taken(
    kind: str, batch: dict[str, Any], guarantee: str
) -> None:
    bench = bench_of(*KINDS[kind], guarantee, **batch)
    sizes = sizes_of(bench)
    bench.settle()
    assert bench.completed
    assert len(bench.written("write")) == MANY * len(EVENTS)
    assert sum(sizes) == MANY * len(EVENTS)
    assert len(sizes) <= 30


def test_results_that_are_large_are_sent_in_parts_that_are_not() -> None:
    def large(segment: dict[str, Any], state: Any) -> list[dict[str, Any]]:
        return [{"i": i, "text": "x" * 100_000} for i in range(60)]

    bench = bench_of(large, STATE)
    sizes = sizes_of(bench)
    bench.settle()
    assert len(bench.written("write")) == 60 * len(EVENTS)
    assert max(sizes) <= 21
