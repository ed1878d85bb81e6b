"""States in place of segments give what segments give, whatever is late, crashes, or has groups."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.bench import Bench

WIDTH = 10
Measured = tuple[int, int, int]
"""A key, how much later its time is than those before, and a value."""
DISORDER = 9


def at(number: int, later: int) -> int:
    return 2 * number + later


def job(measured: list[Measured], batch: int, columns: bool) -> dict[str, Any]:
    form = {"batchFormat": "arrow" if columns else "dicts"}
    segments = [
        {"key": key, "time": at(n, later), "v": v} for n, (key, later, v) in enumerate(measured)
    ]
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "pass"], ["pass", "sum"], ["sum", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": batch, **form,
             "maxPending": 20, "watermarkKey": "time",
             "allowedDisorder": [DISORDER, "milliseconds"],
             "options": {"segments": segments, "partitions": 2}},
            {"name": "pass", "type": "function", "fn": "m:same", "batchSize": batch},
            {"name": "sum", "type": "reduce", "batchSize": batch, "combine": True, **form,
             "groupByKey": "key", "fluxPolicy": "continue"},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": batch},
        ],
        "windows": [
            {"id": "w", "task": "sum", "type": "fixed", "aggregation": ["sum", "v"],
             "windowKey": "time", "range": [WIDTH, "milliseconds"],
             "allowedLateness": [0, "milliseconds"]},
        ],
        "triggers": [
            {"windowId": "w", "type": "watermark", "refinement": "discarding",
             "postEvictor": ["all"], "emit": "m:emitted"},
        ],
    }  # fmt: skip


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    return {"key": state_event["group_key"], "from": state_event["lower_bound"], "sum": state}


FUNCTIONS = {"m:same": lambda segment: segment, "m:emitted": emitted}


@settings(max_examples=examples(40), deadline=None)
@given(
    measured=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, DISORDER), st.integers(-5, 5)),
        min_size=1,
        max_size=120,
    ),
    batch=st.integers(2, 12),
    columns=st.booleans(),
    peers=st.integers(1, 2),
    crashes=st.lists(
        st.tuples(st.sampled_from(["read", "pass", "sum"]), st.integers(5, 60)), max_size=3
    ),
)
def test_sums_are_those_of_a_plain_loop(
    measured: list[Measured],
    batch: int,
    columns: bool,
    peers: int,
    crashes: list[tuple[str, int]],
) -> None:
    bench = Bench(job(measured, batch, columns), FUNCTIONS, peers={"sum": peers, "pass": peers})
    for name, rounds in crashes:
        for _ in range(rounds):
            bench.round()
            bench.clock.advance(0.02)
        bench.crash(bench.task(name))
    for _ in range(60):
        if bench.completed:
            break
        bench.settle()
        bench.clock.advance(0.5)
    assert bench.completed
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for n, (key, later, v) in enumerate(measured):
        sums[key, at(n, later) // WIDTH * WIDTH] += v
    # What was emitted may be written again after a crash, for the output of the bench forgets.
    found = {(each["key"], each["from"], each["sum"]) for each in bench.written("write")}
    assert found == {(key, start, total) for (key, start), total in sums.items()}
