"""A task that cannot go on with what it began is replaced, unless it was about to be anyway; one
whose output has no room waits, and calls no hook twice."""

import pytest
from tests.support.jobs.bench import Bench, chain

from onyx.errors import Blocked, Fenced, WorkLost
from onyx.task.machine import SUPERSEDED_PATIENCE_S

SEGMENTS = [{"n": n} for n in range(4)]


def a_job(**more):
    calls = []
    hooks = {"after_batch": lambda event, lifecycle: calls.append(len(event["results"]))}
    job = chain(SEGMENTS, lifecycles=[{"task": "write", "calls": "m:calls"}], **more)
    bench = Bench(job, {"m:same": lambda segment: segment, "m:calls": lambda: hooks})
    bench.start()
    (output,) = bench.outputs["write"]
    return bench, output, calls


def fails_with(error):
    def fail(*_):
        raise error

    return fail


@pytest.mark.parametrize("error", [WorkLost("the disk lost it"), Fenced("staging is gone")])
def test_lost_work_is_begun_anew_on_a_new_peer(monkeypatch, error):
    bench, output, _ = a_job()
    monkeypatch.setattr(output, "write", fails_with(error))
    bench.settle()
    assert bench.restarted == []
    bench.clock.advance(SUPERSEDED_PATIENCE_S)
    bench.settle()
    bench.settle()
    assert bench.restarted == [bench.task("write").peer]
    assert bench.exceptions == []


def test_one_that_may_be_dead_itself_asks_for_nothing(monkeypatch):
    bench, output, _ = a_job()
    monkeypatch.setattr(output, "write", fails_with(Fenced("staging is gone")))
    bench.settle()
    bench.allowed = False
    bench.clock.advance(SUPERSEDED_PATIENCE_S)
    bench.settle()
    assert bench.restarted == []


def test_a_new_allocation_comes_first_and_the_job_goes_on(monkeypatch):
    bench, output, _ = a_job()
    monkeypatch.setattr(output, "write", fails_with(Fenced("a newer version writes here")))
    bench.settle()
    monkeypatch.undo()
    bench.rewire()
    bench.clock.advance(SUPERSEDED_PATIENCE_S)
    bench.settle()
    assert bench.restarted == []
    assert bench.completed
    assert bench.written("write") == SEGMENTS


@pytest.mark.parametrize("call", ["write", "tick", "flush", "seal"])
def test_an_output_without_room_goes_on_when_there_is_some(monkeypatch, call):
    bench, output, calls = a_job()
    monkeypatch.setattr(output, call, fails_with(Blocked("no space left on the disk")))
    for _ in range(5):
        bench.settle()
        bench.clock.advance(6.0)
    assert not bench.completed
    hooked = len(calls)
    bench.settle()
    assert len(calls) == hooked, "a phase that is done again calls no hook again"
    monkeypatch.undo()
    bench.clock.advance(6.0)
    bench.settle()
    assert bench.completed
    assert bench.exceptions == []
    assert sorted(segment["n"] for segment in bench.written("write")) == [0, 1, 2, 3]
