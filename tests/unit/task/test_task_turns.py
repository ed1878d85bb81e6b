"""What one turn of a task comes to: whoever has work waiting works it off before more is read."""

from __future__ import annotations

from tests.support.bench import Bench, chain

from onyx.task import machine


def test_a_turn_of_an_input_is_one_batch_and_of_any_other_task_all_that_waits() -> None:
    job = chain([{"n": n} for n in range(9)], read={"batchSize": 2}, work={"batchSize": 2})
    bench = Bench(job, {"m:same": lambda segment: segment})
    bench.start()
    read, work = bench.task("read"), bench.task("work")
    source = read.static.source
    assert source is not None
    for sent in (2, 4, 6):
        machine.advance(read)
        assert source.in_flight == sent
    assert work.live.inbox.waiting_segments() >= 6
    machine.advance(work)
    assert work.live.inbox.waiting_segments() == 0
