"""A job that is drained: nothing new is read, nothing that was read is left out."""

from __future__ import annotations

import pytest
from tests.support.jobs.bench import Bench, chain

SAME = {"m:same": lambda segment: segment}
SEGMENTS = [{"n": n} for n in range(1_000)]
GUARANTEES = ["at-least-once", "at-most-once"]


def numbers(bench: Bench) -> list[int]:
    return [segment["n"] for segment in bench.written("write")]


def started(read: dict[str, object] | None = None, partitions: int = 1, **more: object) -> Bench:
    bench = Bench(
        chain(SEGMENTS, read=read, partitions=partitions, guarantee=more.pop("guarantee", None)
              or "at-least-once"),
        SAME,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
    bench.start()
    return bench


def rounds(bench: Bench, count: int) -> None:
    for _ in range(count):
        bench.round()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_drained_job_completes_with_what_it_had_read(guarantee: str) -> None:
    bench = started(guarantee=guarantee)
    rounds(bench, 60)
    bench.drain()
    source = bench.task("read").runtime.source
    assert source is not None
    (partition,) = source.partitions.values()
    read = partition.next_position
    assert 0 < read < len(SEGMENTS)
    bench.settle()
    assert bench.completed
    assert numbers(bench) == list(range(read))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_job_that_has_read_nothing_completes_with_nothing(guarantee: str) -> None:
    bench = started(guarantee=guarantee)
    bench.drain()
    bench.settle()
    assert bench.completed
    assert numbers(bench) == []


def test_a_source_that_was_not_listed_yet_is_not_listed_any_more() -> None:
    bench = Bench(chain(SEGMENTS, partitions=7), SAME)
    bench.drain()
    bench.settle()
    (registered,) = bench.proposals("register-partitions")
    assert registered.count == 0


def test_what_was_pending_is_replayed_after_a_reallocation_and_nothing_new_is_read() -> None:
    bench = started({"maxPending": 30}, peers={"work": 2})
    bench.outputs["write"][0].flushes = False
    bench.settle()
    written = numbers(bench)
    assert len(written) == 30
    bench.drain()
    bench.rewire(work=1)
    bench.settle()
    assert not bench.completed
    bench.outputs["write"][0].flushes = True
    bench.clock.advance(120.0)
    bench.settle()
    assert bench.completed
    assert set(numbers(bench)) == set(written)


def test_a_partition_that_moves_while_it_drains_ends_where_its_former_owner_stopped() -> None:
    bench = started({"maxPending": 30}, partitions=2, peers={"read": 2})
    bench.outputs["write"][0].flushes = False
    bench.settle()
    written = numbers(bench)
    bench.drain()
    bench.outputs["write"][0].flushes = True
    bench.rewire(read=1)
    bench.settle()
    assert bench.completed
    assert set(numbers(bench)) == set(written)
