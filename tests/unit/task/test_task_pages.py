"""What fires at one moment fires page by page: each extent once, whoever dies in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from tests.support.clocks import ManualClock
from tests.support.jobs.bench import Bench

from onyx.settings import Settings, StateSettings
from onyx.task.state import emissions as bounds
from onyx.task.state.emissions import EmissionRun, Emissions
from onyx.task.task import Task

GROUPS = 23
SEGMENTS = [{"n": n, "key": f"key-{n * n % GROUPS}", "time": n * 100} for n in range(60)]
COUNTS = Counter(segment["key"] for segment in SEGMENTS)
AT_END = ({"type": "global"}, {"type": "segment", "threshold": [1000, "elements"]})
PASSED = (
    {"type": "fixed", "windowKey": "time", "range": [1, "hours"]},
    {"type": "watermark", "delay": [1, "hours"]},
)


numbers = count()
"""Of all firings: outputs are given some again, but an extent that fires twice has two."""


def row(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    key, kind = state_event["group_key"], state_event["event_type"]
    return {"key": key, "count": state, "type": kind, "firing": next(numbers)}


def bench_of(case: Any, refinement: str = "accumulating", page_max: int = 1) -> Bench:
    window, trigger = case
    last = [{"n": -1, "key": "last", "time": 100 * 3_600_000}] if case is PASSED else []
    spec = {
        "guarantee": "exactly-once",
        "workflow": [["read", "count"], ["count", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 5,
             "watermarkKey": "time", "options": {"segments": [*SEGMENTS, *last]}},
            {"name": "count", "type": "reduce", "batchSize": 5, "groupByKey": "key",
             "minPeers": 1, "fluxPolicy": "continue"},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
        ],
        "windows": [{"id": "w", "task": "count", "aggregation": "count", **window}],
        "triggers": [
            {"windowId": "w", "id": "t", "emit": "m:row", "refinement": refinement, **trigger}
        ],
    }  # fmt: skip
    settings = Settings(state=StateSettings(firings_page_max=page_max, chunk_interval_s=0.0))
    return Bench(spec, {"m:row": row}, peers={"count": 2}, settings=settings)


def fired(bench: Bench, *kinds: str) -> list[tuple[str, int]]:
    rows = {each["firing"]: each for each in bench.written("write") if each["type"] in kinds}
    return sorted((each["key"], each["count"]) for each in rows.values() if each["key"] != "last")


def counting(bench: Bench) -> list[Task]:
    return [bench.task("count", index) for index in range(2)]


def go_on(bench: Bench, until: Callable[[], bool]) -> None:
    """Until this holds, a moment after the other."""
    for _ in range(5_000):
        if until():
            return
        bench.round()
        bench.clock.advance(0.001)
    raise AssertionError("it has not come to that")


def is_firing(task: Task) -> bool:
    keeper = task.allocation.keeper if task.wired else None
    return keeper is not None and keeper.firing is not None


@pytest.mark.parametrize("refinement", ["accumulating", "discarding"])
@pytest.mark.parametrize("case", [AT_END, PASSED], ids=["end", "watermark"])
def test_every_extent_fires_once_though_peers_die_between_two_pages(
    case: Any, refinement: str
) -> None:
    bench = bench_of(case, refinement)
    for rounds in (0, 7, 20):
        go_on(bench, lambda: any(map(is_firing, counting(bench))))
        for _ in range(rounds):
            bench.round()
        bench.crash(bench.task("count", rounds % 2))
    bench.settle()
    assert bench.completed
    passed, ended = fired(bench, "watermark"), fired(bench, "job-completed")
    if refinement == "accumulating":
        assert ended == sorted(COUNTS.items())
        assert len(set(passed)) == len(passed)
    else:
        assert sorted(passed + ended) == sorted(COUNTS.items())


def test_the_next_page_waits_for_what_was_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "UNSETTLED_MAX", 4)
    bench = bench_of(AT_END, page_max=1)
    most = 0

    def watch() -> bool:
        nonlocal most
        for task in counting(bench):
            if task.wired and task.allocation.keeper is not None:
                most = max(most, task.allocation.keeper.emissions.unsettled)
        return bench.completed

    go_on(bench, watch)
    assert fired(bench, "job-completed") == sorted(COUNTS.items())
    assert 0 < most <= 5


def emissions_of(sizes: list[int]) -> Emissions:
    """Of one shard, sent."""
    emissions = Emissions("count", 0, ManualClock(), 60.0)
    for number, size in enumerate(sizes):
        emissions.add(0, EmissionRun([{"n": number}], None, size))
    emissions.release(emissions.take_fresh())
    return emissions


def test_large_emissions_are_bounded_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HELD_BYTES_MAX", 1_000)
    emissions = emissions_of([400, 400, 400])
    assert emissions.full
    [(_, batch)] = emissions.read(10)
    assert batch.roots is not None
    emissions.complete(batch.roots[1:2])
    assert emissions.full, "what is behind one that is not complete is kept"
    emissions.complete(batch.roots[:1])
    assert not emissions.full
    emissions.complete(batch.roots[2:])
    assert emissions.held_bytes == 0


def test_outputs_flush_when_nothing_can_be_sent_before_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "IN_FLIGHT_A_SHARD_MAX", 2)
    emissions = emissions_of([1, 1, 1])
    assert not emissions.wants_flush(ends=False), "it can be sent"
    [(_, batch)] = emissions.read(10)
    assert len(batch) == 2
    assert emissions.wants_flush(ends=False)
    assert not emissions.wants_flush(ends=False), "it has been said"
