"""Segments that fail in a processor: read again, set aside, or the end of the job."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench

import onyx
from onyx.processors import Inbox, Processor

EVENTS = [{"n": n, "key": "abc"[n % 3]} for n in range(40)]
BAD = {5, 6, 17, 30}
GOOD = [each for each in EVENTS if each["n"] not in BAD]


class Counts(Processor):
    """Numbers the segments of each key. What fails has been counted when it fails."""

    def init(self) -> None:
        self.counts: dict[str, int] = {}

    def process_item(self, ordinal: int, item: Any) -> Any:
        key = item["key"]
        self.counts[key] = self.counts.get(key, 0) + 1
        self.check(item)
        return self.try_emit({"n": item["n"], "key": key, "number": self.counts[key]})

    def check(self, item: Any) -> None:
        if item["n"] in BAD:
            raise ValueError(f"not {item['n']}")

    def save_to_snapshot(self) -> bool:
        return all(self.outbox.offer_to_snapshot(*each) for each in self.counts.items())

    def restore_from_snapshot(self, inbox: Inbox[Any]) -> None:
        self.counts.update(inbox.drain())


class CountsColumns(Counts):
    def process_item(self, ordinal: int, item: pa.RecordBatch) -> Any:
        rows = []
        for row in item.to_pylist():
            key = row["key"]
            self.counts[key] = self.counts.get(key, 0) + 1
            self.check(row)
            rows.append({"n": row["n"], "key": key, "number": self.counts[key]})
        return self.try_emit(pa.RecordBatch.from_pylist(rows))


class Drains(Counts):
    """Takes all at once, so that nobody knows which it was."""

    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        for item in inbox.drain():
            assert self.process_item(ordinal, item)


def bench_of(
    make: Any,
    guarantee: str = "exactly-once",
    peers: int = 1,
    conditions: Any = (),
    letters: bool = True,
    **task: Any,
) -> Bench:
    failed = [{"name": "failed", "type": "output", "plugin": "blackhole"}]
    if letters:
        task["deadLetter"] = "failed"
    elif not conditions:
        failed = []
    spec = {
        "guarantee": guarantee,
        "workflow": [["read", "count"], ["count", "write"]]
        + ([["count", "failed"]] if conditions else []),
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 7,
             "options": {"segments": EVENTS, "partitions": 1}},
            {"name": "count", "type": "function", "processor": "m:count", "groupByKey": "key",
             "fluxPolicy": "continue", **task},
            {"name": "write", "type": "output", "plugin": "blackhole"},
            *failed,
        ],
        "flowConditions": list(conditions),
    }  # fmt: skip
    functions = {
        "m:count": make,
        "m:any": lambda event, old, error, all_new: True,
        "m:post": lambda event, segment, error: {"said": str(error), **segment},
    }
    return Bench(spec, functions, peers={"count": peers})


def settle(bench: Bench) -> None:
    """Also what rests before it is read again."""
    for _ in range(1_500):
        bench.round()
        bench.clock.advance(0.05)
        if bench.completed:
            return
    raise AssertionError(bench.exceptions)


def check(bench: Bench, good: list[dict[str, Any]] = GOOD) -> None:
    """Each good one is counted once, and nothing else is."""
    rows = {each["n"]: each for each in bench.written("write")}
    assert sorted(rows) == [each["n"] for each in good]
    found = {key: {each["number"] for each in rows.values() if each["key"] == key} for key in "abc"}
    counts = Counter(each["key"] for each in good)
    assert found == {key: set(range(1, counts[key] + 1)) for key in "abc"}


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "items": (Counts, {}),
    "columns": (CountsColumns, {"batchFormat": "arrow"}),
    "drained": (Drains, {}),
}


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_raises_is_a_dead_letter_and_leaves_no_trace(kind: str, guarantee: str) -> None:
    make, more = KINDS[kind]
    bench = bench_of(make, guarantee, **more)
    bench.settle()
    assert bench.completed
    check(bench)
    letters = bench.written("failed")
    assert {each["segment"]["n"] for each in letters} == BAD
    assert letters[0]["error"]["type"] == "ValueError"


def test_a_condition_for_exceptions_takes_what_raises() -> None:
    condition = {"from": "count", "to": ["failed"], "predicate": "m:any", "shortCircuit": True,
                 "thrownException": True, "postTransform": "m:post"}  # fmt: skip
    bench = bench_of(Counts, conditions=[condition], letters=False)
    bench.settle()
    assert bench.completed
    check(bench)
    assert {each["said"] for each in bench.written("failed")} == {f"not {n}" for n in BAD}


@pytest.mark.parametrize("rounds", some_of(range(6, 70, 9)))
@pytest.mark.parametrize("kind", KINDS)
def test_dead_letters_are_exact_when_peers_die_and_come_and_go(kind: str, rounds: int) -> None:
    make, more = KINDS[kind]
    bench = bench_of(make, peers=2, **more)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("count", rounds % 2))
    for _ in range(rounds):
        bench.round()
    bench.rewire(count=3)
    bench.settle()
    assert bench.completed
    check(bench)
    assert {each["segment"]["n"] for each in bench.written("failed")} == BAD


class Again(Counts):
    """Asks for bad segments once more, before it changes anything."""

    tried: ClassVar[set[int]]

    def says(self) -> Any:
        return onyx.FAIL

    def process_item(self, ordinal: int, item: Any) -> Any:
        if item["n"] in BAD - self.tried:
            self.tried.add(item["n"])
            return self.says()
        return super().process_item(ordinal, item)

    def check(self, item: Any) -> None: ...


class ReturnsRetry(Again):
    def says(self) -> Any:
        return onyx.Retry("later")


class RaisesRetry(Again):
    def says(self) -> Any:
        self.counts["a"] = 1_000
        raise onyx.Retry("later")


class FailsInProcess(Again):
    def process(self, ordinal: int, inbox: Inbox[Any]) -> None:
        while inbox:
            item = inbox.peek()
            if item["n"] in BAD - self.tried:
                self.tried.add(item["n"])
                inbox.fail(onyx.FAIL)
            elif Counts.process_item(self, ordinal, item):
                inbox.remove()
            else:
                return


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("make", [Again, ReturnsRetry, RaisesRetry, FailsInProcess])
def test_a_segment_is_read_again_when_the_processor_asks_for_that(
    make: type[Again], guarantee: str
) -> None:
    class Asks(make):  # type: ignore[valid-type,misc]
        tried: ClassVar[set[int]] = set()

    bench = bench_of(Asks, guarantee, letters=False)
    settle(bench)
    assert Asks.tried == BAD
    check(bench, EVENTS)


class NeverWorks(Counts):
    def check(self, item: Any) -> None:
        if item["n"] == 5:
            raise onyx.Retry("never", max_retries=2)


def test_a_segment_that_was_read_again_as_often_as_it_may_is_a_dead_letter() -> None:
    bench = bench_of(NeverWorks)
    settle(bench)
    check(bench, [each for each in EVENTS if each["n"] != 5])
    assert [each["segment"]["n"] for each in bench.written("failed")] == [5]


def test_or_ends_the_job_if_nothing_takes_it() -> None:
    bench = bench_of(NeverWorks, letters=False)
    for _ in range(300):
        bench.round()
        bench.clock.advance(0.1)
    assert "Retry: never" in bench.exceptions[0]["detail"]
    assert "read again as often as it may" in bench.exceptions[0]["detail"]


class LosesWhatIsRefused(Counts):
    def process_item(self, ordinal: int, item: Any) -> Any:
        while self.try_emit({"n": item["n"]}):
            pass
        self.try_emit({"n": -1})
        return True


def test_a_mistake_of_the_processor_is_no_failure_of_a_segment() -> None:
    bench = bench_of(LosesWhatIsRefused)
    for _ in range(40):
        bench.round()
    assert "in the same call" in bench.exceptions[0]["detail"]
