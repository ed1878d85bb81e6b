"""`handle-exception: restart`: with a growing wait, and not for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.jobs.bench import Bench, chain

SEGMENTS = [{"n": n} for n in range(4)]


def fails(_: Any) -> Any:
    raise ValueError("no such row")


def job(fn: Callable[[Any], Any] = fails) -> Bench:
    hooks = {"handle_exception": lambda *_: "restart"}
    spec = chain(SEGMENTS, lifecycles=[{"task": "work", "calls": "m:calls"}])
    return Bench(spec, {"m:same": fn, "m:calls": lambda: hooks})


def waited_s(bench: Bench, most_s: float = 100.0) -> float:
    """How long it takes until the failed peer is replaced, and a new one is there."""
    bench.settle()
    before, begin_s = len(bench.restarted), bench.clock.monotonic_s()
    while len(bench.restarted) == before:
        assert bench.clock.monotonic_s() - begin_s < most_s, "it is never restarted"
        bench.clock.advance(0.5)
        bench.round()
    took_s = bench.clock.monotonic_s() - begin_s
    bench.crash(bench.task("work"))
    return took_s


def test_each_restart_waits_twice_as_long_and_the_last_failure_kills_the_job() -> None:
    bench = job()
    settings = bench.settings.task
    waits = [waited_s(bench) for _ in range(settings.restarts_max)]
    expected = [
        min(settings.retry_start_interval_s * 2**n, settings.retry_start_interval_max_s)
        for n in range(settings.restarts_max)
    ]
    assert waits == pytest.approx(expected, abs=0.6)
    assert not bench.exceptions
    bench.settle()
    assert len(bench.proposals("restart-task")) == settings.restarts_max
    assert bench.killed() == ["job-1"]
    report = bench.exceptions[0]
    assert "restarted 5 times without 60 s of work in between" in report["detail"]
    assert "no such row" in report["detail"]


def test_work_without_a_failure_for_long_makes_the_count_begin_anew() -> None:
    broken = [True]

    def sometimes(segment: Any) -> Any:
        return fails(segment) if broken[0] else segment

    bench = job(sometimes)
    for _ in range(3):
        waited_s(bench)
    counts = bench.replica().run(bench.id).restarts
    assert counts["work"] == 3
    broken[0] = False
    bench.settle(["read", "write"])
    bench.start()
    bench.clock.advance(bench.settings.task.restarts_forgotten_after_s)
    broken[0] = True
    assert waited_s(bench) == pytest.approx(bench.settings.task.retry_start_interval_s, abs=0.6)
    counts = bench.replica().run(bench.id).restarts
    assert counts["work"] == 1


def test_a_peer_that_is_stopped_while_it_waits_is_not_restarted() -> None:
    bench = job()
    bench.settle()
    task = bench.task("work")
    assert task.status.failed
    bench.stop(task)
    bench.clock.advance(1_000.0)
    bench.settle()
    assert bench.restarted == []


def test_nothing_is_restarted_while_the_incarnation_may_not_act() -> None:
    bench = job()
    bench.settle()
    bench.allowed = False
    bench.clock.advance(1_000.0)
    bench.settle()
    assert bench.restarted == []
    bench.allowed = True
    bench.settle()
    assert bench.restarted == ["work-0"]
