"""One job with segments that are accounted for and segments that are not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench

from onyx.flow.batch import Batch

Segment = dict[str, Any]
COUNT = 40
SAFE = [{"n": n, "from": "safe"} for n in range(COUNT)]
FAST = [{"n": n, "from": "fast"} for n in range(COUNT)]


def entry(name: str, kind: str, **more: Any) -> dict[str, Any]:
    plugin = {} if kind in ("function", "reduce") else {"plugin": "blackhole"}
    return {"name": name, "type": kind, "batchSize": 3, **plugin, **more}


def reads(name: str, segments: list[Segment], **more: Any) -> dict[str, Any]:
    options = {"segments": segments, "partitions": 2}
    return entry(name, "input", plugin="sequence", options=options, **more)


def two_inputs(**more: Any) -> dict[str, Any]:
    """safe -> work -> write, and fast -> work, of which nobody accounts for what fast reads."""
    work = more.pop("work", {})
    return {
        "workflow": [["safe", "work"], ["fast", "work"], ["work", "write"]],
        "catalog": [
            reads("safe", SAFE),
            reads("fast", FAST, guarantee="at-most-once"),
            entry("work", "function", fn="m:same", **work),
            entry("write", "output"),
        ],
        **more,
    }


def unanchored(**more: Any) -> dict[str, Any]:
    """read -> cut -> work -> write, and read -> write; what cut sends is not accounted for."""
    return {
        "workflow": [["read", "cut"], ["cut", "work"], ["work", "write"], ["read", "write"]],
        "catalog": [
            reads("read", SAFE),
            entry("cut", "function", fn="m:mark", **more.pop("cut", {"anchored": False})),
            entry("work", "function", fn="m:same"),
            entry("write", "output"),
        ],
        **more,
    }


FUNCTIONS = {
    "m:same": lambda segment: segment,
    "m:mark": lambda segment: {**segment, "from": "cut"},
    "m:emit": lambda event, window, trigger, state_event, state: {"count": state},
    "m:always": lambda *_: True,
}


def written(bench: Bench, task: str = "write") -> Counter[tuple[str, int]]:
    return Counter((each["from"], each["n"]) for each in bench.written(task))


def waiting(bench: Bench, task: str) -> list[tuple[Segment, bool]]:
    """What waits in front of a task, each segment with whether it is accounted for."""
    items = [each.item for each in bench.task(task).allocation.inbox.take(1_000)]
    batches = [item for item in items if isinstance(item, Batch)]
    return [(each, batch.roots is not None) for batch in batches for each in batch.segments]


def every(*names: str) -> Counter[tuple[str, int]]:
    return Counter((name, n) for name in names for n in range(COUNT))


PEERS = [{}, {"work": 2, "write": 2}]


@pytest.mark.parametrize("peers", PEERS)
@pytest.mark.parametrize("short_circuit", [True, False])
def test_a_job_with_both_ends_when_all_of_both_is_written(
    peers: dict[str, int], short_circuit: bool
) -> None:
    bench = Bench(two_inputs(), FUNCTIONS, peers, short_circuit=short_circuit)
    bench.settle()
    assert bench.completed
    assert written(bench) == every("safe", "fast")


def test_what_is_not_accounted_for_costs_no_acks_and_is_not_in_flight() -> None:
    bench = Bench(two_inputs(), FUNCTIONS)
    bench.start()
    bench.settle(["safe", "fast"])
    assert bench.task("safe").runtime.source.in_flight > 0
    assert bench.task("fast").runtime.source.in_flight == 0
    found = {(each["from"], tracked) for each, tracked in waiting(bench, "work")}
    assert found == {("safe", True), ("fast", False)}


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_over_a_change_of_the_allocation_one_is_replayed_and_the_other_kept(steps: int) -> None:
    bench = Bench(two_inputs(), FUNCTIONS, {"work": 2, "write": 2})
    bench.start()
    for _ in range(steps):
        bench.round()
    bench.rewire()
    bench.settle()
    assert bench.completed
    found = written(bench)
    assert set(found) == set(every("safe", "fast")), "nothing is lost by who stays"
    assert all(count == 1 for (name, _), count in found.items() if name == "fast")


@pytest.mark.short(10)
@pytest.mark.parametrize("steps", some_of(range(0, 80, 4)))
@pytest.mark.parametrize("dies", ["work", "write", "safe", "fast"])
def test_what_a_peer_had_that_dies_is_lost_or_replayed(steps: int, dies: str) -> None:
    bench = Bench(two_inputs(), FUNCTIONS)
    bench.start()
    for _ in range(steps):
        bench.round()
    bench.crash(bench.task(dies))
    bench.settle()
    assert bench.completed
    found = written(bench)
    assert set(every("safe")) <= set(found)
    assert all(count == 1 for (name, _), count in found.items() if name == "fast")


@pytest.mark.parametrize("steps", range(0, 60, 5))
def test_partitions_that_fall_to_others_are_read_on_where_each_input_may(steps: int) -> None:
    """What is accounted for goes on where it was; of the other what was reserved may be lost."""
    bench = Bench(two_inputs(), FUNCTIONS, {"safe": 2, "fast": 2})
    bench.start()
    for _ in range(steps):
        bench.round()
    bench.rewire(safe=1, fast=1)
    bench.settle()
    assert bench.completed
    found = written(bench)
    assert set(every("safe")) <= set(found)
    assert all(count == 1 for (name, _), count in found.items() if name == "fast")


# --- unanchored tasks ----------------------------------------------------------------------------


def test_what_an_unanchored_task_sends_is_no_part_of_the_tree() -> None:
    bench = Bench(unanchored(), FUNCTIONS)
    bench.start()
    for _ in range(5):
        bench.settle(["read", "cut", "write"])
        bench.clock.advance(1.0)
    assert bench.task("work").allocation.inbox.waiting_segments() >= COUNT, "nothing is done"
    assert bench.task("read").runtime.source.in_flight == 0, "all trees are complete"
    assert not bench.completed
    bench.settle()
    assert bench.completed
    assert written(bench) == every("safe", "cut")


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_the_trees_above_an_unanchored_task_are_replayed(steps: int) -> None:
    bench = Bench(unanchored(), FUNCTIONS)
    bench.start()
    for _ in range(steps):
        bench.round()
    bench.crash(bench.task("work"))
    bench.settle()
    assert bench.completed
    assert set(every("safe")) <= set(written(bench))


CONDITIONS = [
    {"from": "cut", "to": ["work"], "predicate": ["<", "n", 10], "anchored": False},
    {"from": "cut", "to": ["work"], "predicate": [">=", "n", 5]},
]


def test_a_condition_says_of_single_segments_that_they_are_not_accounted_for() -> None:
    """What another condition sends to the same child is accounted for there, and is sent once."""
    bench = Bench(unanchored(cut={}, flowConditions=CONDITIONS), FUNCTIONS)
    bench.start()
    bench.settle(["read", "cut"])
    found = {(each["n"], tracked) for each, tracked in waiting(bench, "work")}
    assert found == {(n, n >= 5) for n in range(COUNT)}


def test_a_job_with_such_conditions_ends_when_all_is_written() -> None:
    bench = Bench(unanchored(cut={}, flowConditions=CONDITIONS), FUNCTIONS)
    bench.settle()
    assert bench.completed
    assert written(bench) == every("safe", "cut")


# --- windows -------------------------------------------------------------------------------------


def windowed(kind: str = "reduce") -> dict[str, Any]:
    spec = two_inputs()
    spec["workflow"] = [["safe", "work"], ["fast", "work"], ["work", "count"], ["count", "write"]]
    spec["catalog"].insert(3, entry("count", kind, deduplicate=False, fn="m:same"))
    window = {"id": "ever", "task": "count", "type": "global", "aggregation": "count"}
    spec["windows"] = [window]
    trigger = {"type": "segment", "threshold": [1000, "elements"], "refinement": "accumulating"}
    spec["triggers"] = [{"windowId": "ever", "emit": "m:emit", **trigger}]
    return spec


@pytest.mark.parametrize("kind", ["reduce", "function"])
def test_windows_count_both_and_fire_for_the_last_time_when_both_have_ended(kind: str) -> None:
    bench = Bench(windowed(kind), FUNCTIONS)
    bench.settle()
    assert bench.completed
    assert [each for each in bench.written("write") if "count" in each] == [{"count": 2 * COUNT}]


@pytest.mark.parametrize("steps", range(0, 120, 8))
def test_windows_lose_no_more_than_a_dead_peer_had(steps: int) -> None:
    bench = Bench(windowed(), FUNCTIONS)
    bench.start()
    for _ in range(steps):
        bench.round()
    bench.crash(bench.task("count"))
    bench.settle()
    assert bench.completed
    counts = {each["count"] for each in bench.written("write")}
    assert len(counts) == 1, "what has fired is durable, and fires no second time otherwise"
    assert counts.pop() >= COUNT


# --- the end -------------------------------------------------------------------------------------


def test_an_input_that_ends_long_after_another_still_ends_the_job() -> None:
    """The acker has heard of the end of the first one, and must not forget it meanwhile."""
    bench = Bench(two_inputs(), FUNCTIONS)
    bench.start()
    bench.settle(["fast", "work", "write"])
    for _ in range(400):
        bench.clock.advance(6.0)
        bench.acker.advance()
    bench.settle()
    assert bench.completed
    assert written(bench) == every("safe", "fast")


# --- retries -------------------------------------------------------------------------------------


def test_a_retry_is_there_for_what_is_accounted_for_and_the_rest_has_failed() -> None:
    seen: Counter[str] = Counter()

    def third(segment: Segment) -> Segment:
        seen[f"{segment}"] += 1
        if segment["n"] == 3 and seen[f"{segment}"] < 3:
            raise ValueError("busy")
        return segment

    retry = {
        "from": "work", "to": "none", "predicate": "m:always", "thrownException": True,
        "shortCircuit": True, "action": "retry",
    }  # fmt: skip
    always = {"from": "work", "to": ["write"], "predicate": "m:always"}
    spec = two_inputs(work={"deadLetter": "dead"}, flowConditions=[retry, always])
    spec["catalog"].append(entry("dead", "output"))
    bench = Bench(spec, {**FUNCTIONS, "m:same": third})
    for _ in range(5):
        bench.settle()
        bench.clock.advance(5.0)
    assert bench.completed
    assert written(bench) == every("safe", "fast") - Counter([("fast", 3)])
    assert [each["segment"] for each in bench.written("dead")] == [{"n": 3, "from": "fast"}]
