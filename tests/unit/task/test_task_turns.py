"""What one turn of a task comes to: whoever has work waiting works it off before more is read."""

from __future__ import annotations

from tests.support.jobs.bench import Bench, chain

from onyx.task import machine


def bench_with(waiting: int, batch_takes_s: float = 0.0) -> Bench:
    job = chain([{"n": n} for n in range(9)], read={"batchSize": 1}, work={"batchSize": 2})

    def same(segment: dict[str, int]) -> dict[str, int]:
        bench.clock.advance(batch_takes_s / 2)
        return segment

    bench = Bench(job, {"m:same": same})
    bench.start()
    read = bench.task("read")
    source = read.runtime.source
    assert source is not None
    for sent in range(1, waiting + 1):
        machine.advance(read)
        assert source.in_flight == sent, "a turn of an input is one batch"
    return bench


def test_a_turn_is_all_whole_batches_that_wait() -> None:
    bench = bench_with(waiting=6)
    work = bench.task("work")
    machine.advance(work)
    assert work.allocation.inbox.waiting_segments() == 0


def test_less_than_a_batch_is_left_to_grow() -> None:
    bench = bench_with(waiting=5)
    work = bench.task("work")
    machine.advance(work)
    assert work.allocation.inbox.waiting_segments() == 1
    machine.advance(work)
    assert work.allocation.inbox.waiting_segments() == 0


def test_a_slow_function_does_one_batch_a_turn_for_others_wait_too() -> None:
    bench = bench_with(waiting=6, batch_takes_s=1.0)
    work = bench.task("work")
    machine.advance(work)
    assert work.allocation.inbox.waiting_segments() == 4
