"""At-most-once over a re-allocation: who stays loses nothing and does nothing twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench, chain

SEGMENTS = [{"n": n} for n in range(60)]
calls: Counter[int] = Counter()


def counted(segment: dict[str, Any]) -> dict[str, Any]:
    calls[segment["n"]] += 1
    return segment


def started(**more: Any) -> Bench:
    calls.clear()
    job = chain(SEGMENTS, guarantee="at-most-once", **more)
    bench = Bench(job, {"m:same": counted}, peers={"read": 1, "work": 2, "write": 2})
    bench.start()
    return bench


def numbers(bench: Bench) -> list[int]:
    return sorted(segment["n"] for segment in bench.written("write"))


@pytest.mark.parametrize("group", [{}, {"groupByKey": ["n"], "fluxPolicy": "continue"}])
@pytest.mark.parametrize("steps", some_of([*range(0, 60, 3), 14, 28]))
def test_nothing_is_lost_or_repeated_whenever_the_allocation_changes(
    steps: int, group: dict[str, Any]
) -> None:
    """A multiple of 7: twice at once, so that peers hear of both changes in one step."""
    bench = started(work=group)
    for _ in range(steps):
        bench.round()
    bench.rewire()
    for _ in range(steps % 7):
        bench.round()
    bench.rewire()
    bench.settle()
    assert bench.completed
    assert numbers(bench) == list(range(60))
    assert calls == Counter(range(60))


def test_what_waits_in_front_of_a_slow_output_is_kept() -> None:
    bench = started()
    bench.settle(["read", "work"])
    assert bench.task("write").allocation.inbox.waiting_segments() > 0
    bench.rewire()
    bench.settle()
    assert bench.completed
    assert numbers(bench) == list(range(60))


def test_what_a_peer_has_that_leaves_its_task_is_lost_and_nothing_twice() -> None:
    bench = started()
    bench.settle(["read"])
    bench.rewire(work=1)
    bench.settle()
    assert bench.completed
    assert len(set(numbers(bench))) == len(numbers(bench)) < 60


def test_at_least_once_drops_it_because_it_is_replayed() -> None:
    calls.clear()
    bench = Bench(chain(SEGMENTS), {"m:same": counted})
    bench.start()
    bench.settle(["read"])
    bench.rewire()
    assert bench.task("work").runtime.delivery.take_kept(lambda *_: None) is None
    bench.settle()
    assert bench.completed
    assert sorted(set(numbers(bench))) == list(range(60))
