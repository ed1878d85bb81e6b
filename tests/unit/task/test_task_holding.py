"""What a peer works on is not read again, however long it takes; what nobody works on is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.bench import Bench, chain

from onyx.flow.batch import Segment

TIMES: dict[str, Any] = {"pendingTimeout": 1_000, "inputRetryTimeout": 250}
HOUR_S = 3_600.0
COUNT = 12


def segments() -> list[Segment]:
    return [{"n": n} for n in range(COUNT)]


class Slow:
    """A function that takes `batch_s` over a batch, while the other threads of its process go on:
    they say what it works on, if the test does not keep them from it."""

    def __init__(self, batch_s: float, says: bool = True) -> None:
        self.bench: Bench
        self.calls: list[int] = []
        self.batch_s = batch_s
        self.says = says

    def one(self, segment: Segment) -> Segment:
        self.calls.append(segment["n"])
        self._wait()
        return segment

    def batch(self, found: list[Segment]) -> list[Segment]:
        self.calls += [each["n"] for each in found]
        self._wait()
        return found

    def columns(self, found: pa.RecordBatch) -> pa.RecordBatch:
        self.batch(found.to_pylist())
        return found

    def _wait(self) -> None:
        until_s = self.bench.clock.monotonic_s() + self.batch_s
        while self.bench.clock.monotonic_s() < until_s:
            self.bench.clock.advance(0.25)
            if self.says:
                self.bench.holding.tell()

    def run(self, spec: dict[str, Any], **more: Any) -> Bench:
        functions = {"m:one": self.one, "m:batch": self.batch, "m:columns": self.columns}
        self.bench = Bench(spec, {**functions, "m:same": lambda segment: segment}, **more)
        self.bench.settle()
        return self.bench


WORK: dict[str, dict[str, Any]] = {
    "each segment": {"fn": "m:one"},
    "batch": {"fn": "m:batch", "batchFn": True},
    "columns": {"fn": "m:columns", "batchFormat": "arrow"},
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
@pytest.mark.parametrize("place", ["work", "read", "write"])
def test_a_batch_that_takes_longer_than_the_pending_timeout_is_worked_on_once(
    place: str, work: dict[str, Any]
) -> None:
    slow = Slow(10.0)
    spec = chain(segments(), read=TIMES)
    entry = next(each for each in spec["catalog"] if each["name"] == place)
    entry |= work
    bench = slow.run(spec)
    assert bench.completed
    assert sorted(slow.calls) == list(range(COUNT))
    assert len(bench.written("write")) == COUNT


def test_what_nobody_works_on_any_more_is_read_again_after_its_timeout() -> None:
    bench = Bench(chain(segments(), read=TIMES), {"m:same": lambda segment: segment})
    bench.start()
    inbox = bench.task("work").allocation.inbox
    while not inbox.waiting_segments():
        bench.round(["read"])
    assert inbox.take(COUNT), "lost without a word, as by a bug"
    for _ in range(40):
        bench.round()
        bench.clock.advance(0.05)
        bench.holding.tell()
    bench.settle()
    assert bench.completed
    assert sorted(each["n"] for each in bench.written("write")) == list(range(COUNT))


@pytest.mark.parametrize("says", [True, False])
def test_what_waits_to_be_durable_is_held_as_well(says: bool) -> None:
    bench = Bench(chain(segments(), read=TIMES), {"m:same": lambda segment: segment})
    bench.start()
    output = bench.outputs["write"][0]
    output.flushes = False
    for _ in range(400):
        bench.round()
        bench.clock.advance(0.05)
        if says:
            bench.holding.tell()
    repeats = len(output.written) - COUNT
    assert repeats == 0 if says else repeats >= COUNT
    output.flushes, output.durable_count = True, len(output.written)
    bench.settle()
    assert bench.completed


@pytest.mark.parametrize("says", [True, False])
def test_what_waits_for_a_chunk_of_the_state_log_is_held_as_well(says: bool) -> None:
    spec = chain(segments(), read=TIMES, guarantee="at-least-once")
    spec["windows"] = [{"id": "w", "task": "work", "type": "global", "aggregation": "count"}]
    spec["catalog"][1]["deduplicate"] = False
    spec["triggers"] = [
        {
            "windowId": "w",
            "type": "segment",
            "threshold": [1_000, "elements"],
            "refinement": "accumulating",
            "emit": "m:emitted",
        }
    ]
    counts: list[int] = []

    def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: int) -> None:
        counts.append(state)

    bench = Bench(spec, {"m:same": lambda segment: segment, "m:emitted": emitted})
    bench.start()
    source = bench.task("read").runtime.source
    assert source is not None
    while source.in_flight < COUNT:
        bench.round(["read"])
    bench.slow = []
    for _ in range(200):
        bench.round()
        bench.clock.advance(0.05)
        if says:
            bench.holding.tell()
    bench.finish_slow()
    bench.settle()
    assert bench.completed
    assert (counts[-1] == COUNT) is says


def test_an_acker_does_not_forget_a_tree_that_somebody_works_on() -> None:
    slow = Slow(HOUR_S)
    spec = chain(segments(), read=TIMES, work=WORK["batch"], batch_size=COUNT)
    bench = slow.run(spec)
    assert bench.completed, "its last ack has found the others"
    assert len(slow.calls) == COUNT


def test_a_late_ack_of_what_was_read_again_counts() -> None:
    bench = Bench(chain(segments(), read=TIMES), {"m:same": lambda segment: segment})
    bench.start()
    output = bench.outputs["write"][0]
    output.flushes = False
    while len(output.written) < 2 * COUNT:
        bench.round()
        bench.clock.advance(0.05)
    output.durable_count = COUNT
    bench.settle()
    source = bench.task("read").runtime.source
    assert source is not None
    assert source.in_flight == 0, "the first attempt of each is durable"


def told(bench: Bench) -> Callable[[], list[int]]:
    seen: list[int] = []
    on_held = bench.on_held

    def heard(*args: Any) -> None:
        seen.append(len(args[3]))
        on_held(*args)

    bench.on_held = heard  # type: ignore[method-assign]
    return lambda: seen


def test_nothing_is_said_where_nothing_is_held_and_under_at_most_once() -> None:
    for guarantee in ("at-least-once", "at-most-once"):
        spec = chain(segments(), guarantee=guarantee)
        bench = Bench(spec, {"m:same": lambda segment: segment})
        said = told(bench)
        bench.start()
        for _ in range(200):
            bench.round()
            bench.clock.advance(1.0)
            bench.holding.tell()
        assert bench.completed
        if guarantee == "at-most-once":
            assert said() == []
        before = len(said())
        bench.clock.advance(1_000.0)
        bench.holding.tell()
        assert len(said()) == before
