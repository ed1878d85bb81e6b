"""What an input does about a segment that failed: all after it again, in order, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.support.jobs.bench import Bench, chain

import onyx
from onyx.ids import JobId, TaskName
from onyx.model.job import Job
from onyx.telemetry.catalog import GIVEN_UP, Metric
from onyx.telemetry.interface import NULL_TASK, TaskMetrics

Segment = dict[str, Any]
COUNT = 40
SEGMENTS = [{"n": n} for n in range(COUNT)]


class Failing:
    """Fails chosen segments so often, and notes the order in which all come."""

    def __init__(self, times: dict[int, int], ask: Callable[[], Any] = lambda: onyx.FAIL) -> None:
        self.times = Counter(times)
        self.ask = ask
        self.seen: list[int] = []

    def __call__(self, segment: Segment) -> Any:
        n = segment["n"]
        self.seen.append(n)
        if self.times[n]:
            self.times[n] -= 1
            return self.ask()
        return segment


def job(mode: str, **more: Any) -> dict[str, Any]:
    read = {"retryMode": mode, "pendingTimeout": 2_000, "inputRetryTimeout": 500}
    return chain(SEGMENTS, read=read | more.pop("read", {}), **more)


def patiently(bench: Bench) -> None:
    for _ in range(40):
        bench.settle()
        if bench.completed or bench.exceptions:
            return
        bench.clock.advance(1.0)


def written(bench: Bench) -> list[int]:
    return [segment["n"] for segment in bench.written("write")]


def check_order(numbers: list[int]) -> None:
    """Each is the one after the one before, or goes back."""
    for before, after in pairwise(numbers):
        assert after == before + 1 or after <= before, numbers


@pytest.mark.parametrize(
    "times", [{}, {5: 1}, {0: 2}, {39: 3}, {5: 1, 6: 2}, {6: 2, 5: 1, 30: 1}, {7: 4, 8: 4}]
)
@pytest.mark.parametrize("size", [1, 3, 20])
def test_all_after_a_failure_comes_again_in_order(times: dict[int, int], size: int) -> None:
    fails = Failing(times)
    bench = Bench(job("all-after", batch_size=size), {"m:same": fails})
    patiently(bench)
    assert bench.completed
    check_order(fails.seen)
    assert set(written(bench)) == set(range(COUNT))
    last = {n: place for place, n in enumerate(written(bench))}
    assert sorted(last, key=last.__getitem__) == list(range(COUNT)), "the last time of each"


def test_nothing_new_is_read_while_something_rests() -> None:
    fails = Failing({5: 1})
    bench = Bench(job("all-after"), {"m:same": fails})
    source = None
    for _ in range(200):
        bench.round()
        source = bench.task("read").runtime.source if bench.task("read").loaded else None
        if source is not None and source.resting:
            break
    assert source is not None
    [partition] = source.partitions.values()
    read, resting = partition.next_position, source.resting
    for _ in range(50):
        bench.round()
    assert (partition.next_position, source.resting) == (read, resting) != (COUNT, 0)
    patiently(bench)
    assert bench.completed
    check_order(fails.seen)


def test_what_is_lost_comes_again_with_all_after_it() -> None:
    fails = Failing({})
    bench = Bench(job("all-after", read={"maxPending": 12}), {"m:same": fails})
    bench.start()
    bench.settle(["read"])
    bench.task("work").allocation.inbox.take(5)  # lost: nobody says that he works on it
    for _ in range(60):
        bench.settle(["read", "work"])
        bench.clock.advance(0.5)
        bench.holding.tell()
        if bench.task("read").runtime.source.take_retried():
            break
    patiently(bench)
    assert bench.completed
    assert set(written(bench)) == set(range(COUNT))


@pytest.mark.parametrize("steps", range(0, 90, 6))
def test_the_order_is_kept_over_a_change_of_the_allocation(steps: int) -> None:
    fails = Failing({5: 1, 11: 2, 12: 1})
    bench = Bench(job("all-after"), {"m:same": fails})
    for _ in range(steps):
        bench.round()
    bench.rewire()
    patiently(bench)
    assert bench.completed
    check_order(fails.seen)
    assert set(written(bench)) == set(range(COUNT))


def test_a_segment_that_fails_for_good_holds_nothing_up() -> None:
    def gives_up() -> Any:
        raise onyx.Retry("never", max_retries=2)

    fails = Failing({5: 100}, gives_up)
    spec = job("all-after", work={"deadLetter": "dead"})
    spec["catalog"].append({"name": "dead", "type": "output", "plugin": "blackhole"})
    bench = Bench(spec, {"m:same": fails})
    patiently(bench)
    assert bench.completed
    assert fails.seen.count(5) == 3
    assert [each["segment"]["n"] for each in bench.written("dead")] == [5]
    assert set(written(bench)) == set(range(COUNT)) - {5}


# --- none ----------------------------------------------------------------------------------------


class Counting(Bench):
    def metrics(self, job_id: JobId, job: Job, task: TaskName) -> TaskMetrics:
        self.added = Counter[str]()
        added = self.added

        class Added(type(NULL_TASK)):  # type: ignore[misc]
            def add(self, metric: Metric, amount: float = 1) -> None:
                added[metric.name] += int(amount)

        self.__dict__.setdefault("all_added", []).append(added)
        return Added()

    def given_up(self) -> int:
        return sum(each[GIVEN_UP.name] for each in self.__dict__["all_added"])


def test_without_retries_what_fails_counts_as_processed_and_is_counted() -> None:
    fails = Failing({5: 1, 6: 9, 30: 2})
    bench = Counting(job("none"), {"m:same": fails})
    patiently(bench)
    assert bench.completed
    assert fails.seen == list(range(COUNT))
    assert written(bench) == [n for n in range(COUNT) if n not in (5, 6, 30)]
    assert bench.given_up() == 3


def test_without_retries_what_is_lost_counts_as_processed() -> None:
    bench = Counting(job("none", read={"maxPending": 12}), {"m:same": Failing({})})
    bench.start()
    bench.settle(["read"])
    bench.task("work").allocation.inbox.take(5)
    for _ in range(10):
        bench.settle()
        bench.clock.advance(1.0)
        bench.holding.tell()
    patiently(bench)
    assert bench.completed
    assert bench.given_up() == COUNT - len(written(bench)) > 0
    assert len(set(written(bench))) == len(written(bench))


@pytest.mark.parametrize("steps", range(0, 60, 6))
def test_without_retries_a_change_of_the_allocation_gives_up_what_is_in_flight(steps: int) -> None:
    bench = Counting(job("none"), {"m:same": Failing({})})
    for _ in range(steps):
        bench.round()
    bench.rewire()
    patiently(bench)
    assert bench.completed
    assert len(set(written(bench))) == len(written(bench))
    assert COUNT - bench.given_up() <= len(written(bench)) <= COUNT
