"""What inputs count of their partitions, to be added up over peers and processes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from tests.support.jobs.bench import Bench, chain

from onyx.task.source.source import Source
from onyx.task.table import StepOutcome
from onyx.task.task import BatchTask
from onyx.telemetry.catalog import SOURCE_OFFSET, TAKEN_OVER, Metric
from onyx.telemetry.interface import NULL_TASK, TaskMetrics

PENDING_MAX = 30
SEGMENTS = [{"n": n} for n in range(300)]


class Counts(TaskMetrics):
    """What one peer counts."""

    def __init__(self) -> None:
        self.added: Counter[Metric] = Counter()
        self.values: dict[Metric, float] = {}

    def add(self, metric: Metric, amount: float = 1) -> None:
        self.added[metric] += int(amount)

    def set(self, metric: Metric, value: float) -> None:
        self.values[metric] = value


class CountingBench(Bench):
    """A job whose inputs count."""

    def __init__(self, **read: Any) -> None:
        self.counts: dict[str, list[Counts]] = defaultdict(list)
        spec = chain(SEGMENTS, read={"maxPending": PENDING_MAX, **read}, partitions=2)
        super().__init__(spec, {"m:same": lambda segment: segment})

    def metrics(self, job_id: Any, job: Any, task: Any) -> TaskMetrics:
        if task != "read":
            return NULL_TASK
        self.counts[task].append(Counts())
        return self.counts[task][-1]

    @property
    def position(self) -> float:
        """All that is kept of those that were there, as `Metric.merge` says."""
        return sum(each.values.get(SOURCE_OFFSET, 0) for each in self.counts["read"])

    @property
    def taken_over(self) -> int:
        return sum(each.added[TAKEN_OVER] for each in self.counts["read"])


def source_of(bench: Bench) -> Source:
    task = bench.task("read")
    assert isinstance(task, BatchTask)
    assert task.runtime.source is not None
    return task.runtime.source


def middle(bench: Bench) -> None:
    """Until some of it is processed, and some in flight."""
    bench.start()
    source = source_of(bench)
    while not (source.completed > 50 and source.in_flight):
        assert bench.round()


def test_positions_of_an_input_are_counted_once_over_peers() -> None:
    bench = CountingBench()
    middle(bench)
    bench.rewire(read=2)
    bench.settle()

    assert bench.completed
    assert bench.position == len(SEGMENTS)
    assert 0 < bench.taken_over <= PENDING_MAX, "what was in flight: it was said how far that is"


def test_what_a_peer_that_left_has_read_counts_where_it_is_read_on() -> None:
    bench = CountingBench()
    middle(bench)
    task = bench.task("read")
    assert bench.stop(task, "peer-left") is StepOutcome.DONE
    bench.crash(task)
    bench.settle()

    assert bench.completed
    assert bench.position == len(SEGMENTS)


def test_a_peer_counts_what_the_dead_one_before_it_may_have_sent() -> None:
    bench = CountingBench()
    middle(bench)
    bench.crash(bench.task("read"))
    bench.settle()

    assert bench.completed
    assert bench.taken_over > 0


def test_under_at_most_once_the_position_is_what_was_read() -> None:
    bench = Bench(chain(SEGMENTS, guarantee="at-most-once"), {"m:same": lambda segment: segment})
    bench.settle()

    assert source_of(bench).done == len(SEGMENTS)
