"""`batchTimeout`: a task waits so long for a batch to fill, and not when somebody is in a hurry."""

from __future__ import annotations

from typing import Any

from tests.support.clocks import ManualClock
from tests.support.jobs.bench import Bench, chain

from onyx.plugins.bases import IndexedReader
from onyx.task.batching import FilledReader, Filling

SEGMENTS = [{"n": n} for n in range(30)]


def test_a_batch_waits_until_it_is_whole_or_old_enough() -> None:
    clock = ManualClock()
    filling = Filling(clock, 1.0)
    assert filling.over(0, 10)
    assert not filling.over(3, 10)
    clock.advance(0.75)
    assert not filling.over(9, 10)
    assert filling.over(10, 10)
    assert not filling.over(1, 10)
    clock.advance(1.0)
    assert filling.over(1, 10)


def test_without_a_time_out_nothing_waits() -> None:
    assert Filling(ManualClock(), 0.0).over(1, 10)


class Source:
    """A source that has got so many segments by now."""

    def __init__(self, there: int = 0) -> None:
        self.there, self.ended = there, False

    def reader(self, clock: ManualClock) -> FilledReader:
        def fetch(first: int, most: int) -> list[Any]:
            return SEGMENTS[first : min(self.there, first + most)]

        inner = IndexedReader(0, fetch, lambda: self.there if self.ended else None)
        return FilledReader(inner, clock, 1.0)


def test_a_source_that_gives_little_is_read_by_whole_batches() -> None:
    clock, source = ManualClock(), Source(3)
    reader = source.reader(clock)
    assert reader.read(10) == []
    source.there = 12
    assert reader.read(10) == SEGMENTS[:10]
    assert reader.read(10) == []
    clock.advance(1.0)
    assert reader.read(10) == SEGMENTS[10:12]


def test_what_waits_is_given_at_the_end_at_once_and_nothing_is_lost() -> None:
    source = Source(3)
    reader = source.reader(ManualClock())
    assert reader.read(10) == []
    source.ended = True
    assert not reader.exhausted()
    assert reader.read(2) == SEGMENTS[:2]
    assert not reader.exhausted()
    assert reader.read(2) == SEGMENTS[2:3]
    assert reader.exhausted()


def test_a_source_that_drains_waits_for_nothing() -> None:
    reader = Source(3).reader(ManualClock())
    assert reader.read(10) == []
    reader.hurry()
    assert reader.read(10) == SEGMENTS[:3]


def test_a_job_of_tasks_that_wait_gives_what_it_gives_without_waiting() -> None:
    job = chain(SEGMENTS, work={"batchTimeout": 500, "batchSize": 1_000})
    job["catalog"][0].update(batchTimeout=500, batchSize=7)
    job["catalog"][2].update(batchTimeout=500, batchSize=1_000)
    bench = Bench(job, {"m:same": dict})
    bench.settle()
    assert bench.completed, bench.exceptions
    assert sorted(each["n"] for each in bench.written("write")) == list(range(30))
