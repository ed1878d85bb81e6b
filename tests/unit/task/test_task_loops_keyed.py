"""Loops over functions with state: each segment changes the state of its group once in each lap,
whoever dies, and what was made of it goes on."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Any

import pytest
from tests.support.jobs.bench import Bench

NODES = 12
EDGES = {n: sorted({(n * n + 1) % NODES, (3 * n + 2) % NODES, (n + 5) % NODES}) for n in range(12)}
"""A graph, with the length of an edge that is its place, from 1."""
STARTS = [{"node": n, "of": f"s{n % 3}", "far": 0} for n in (0, 4, 7, 9)]


def relax(segment: dict[str, Any], state: Any) -> list[dict[str, Any]]:
    """A way to a node: if no shorter one is known, all ways on from there, and the news."""
    best = state.best.get(segment["of"])
    state.calls = (state.calls or 0) + 1
    if best is not None and best <= segment["far"]:
        return []
    state.best[segment["of"]] = segment["far"]
    on = [
        {"node": to, "of": segment["of"], "far": segment["far"] + length}
        for length, to in enumerate(EDGES[segment["node"]], 1)
    ]
    return [*on, {**segment, "node": segment["node"], "news": True}]


def shortest() -> dict[tuple[str, int], int]:
    """By Dijkstra."""
    found: dict[tuple[str, int], int] = {}
    for of in {each["of"] for each in STARTS}:
        heap = [(0, each["node"]) for each in STARTS if each["of"] == of]
        while heap:
            far, node = heapq.heappop(heap)
            if (of, node) not in found:
                found[of, node] = far
                for length, to in enumerate(EDGES[node], 1):
                    heapq.heappush(heap, (far + length, to))
    return found


def spec(**work: Any) -> dict[str, Any]:
    """read -> work -> turn -> write, and from turn back to work what is no news."""
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "work"], ["work", "turn"], ["turn", "count"], ["count", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 2,
             "options": {"segments": STARTS, "partitions": 2}},
            {"name": "work", "type": "function", "fn": "m:relax", "batchSize": 3,
             "groupByKey": "node", "fluxPolicy": "continue",
             "state": {"best": "map[str, int]", "calls": "value[int]"}, **work},
            {"name": "turn", "type": "function", "fn": "m:same", "batchSize": 3,
             "loopTo": "work", "lapsMax": 100},
            {"name": "count", "type": "reduce", "groupByKey": ["of", "node", "far"],
             "fluxPolicy": "continue"},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
        "windows": [{"id": "w", "task": "count", "type": "global", "aggregation": "count"}],
        "triggers": [{"windowId": "w", "type": "watermark", "refinement": "accumulating",
                      "emit": "m:emitted"}],
        "flowConditions": [
            {"from": ["turn"], "to": ["count"], "predicate": ["==", "news", True],
             "shortCircuit": True},
            {"from": ["turn"], "to": ["work"], "predicate": ["!=", "news", True]},
        ],
    }  # fmt: skip


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    return {**state_event["group_key"], "times": state}


FUNCTIONS = {"m:relax": relax, "m:same": lambda each: each, "m:emitted": emitted}


def pass_time(bench: Bench, rounds: int) -> None:
    for _ in range(rounds):
        bench.round()
        bench.clock.advance(0.02)


def finish(bench: Bench) -> list[dict[str, Any]]:
    for _ in range(400):
        if bench.completed:
            break
        bench.settle()
        bench.clock.advance(0.5)
    assert bench.completed, bench.exceptions
    return bench.written("write")


def check(rows: list[dict[str, Any]]) -> None:
    """The last news of each node is its distance, and no news came twice."""
    best: dict[tuple[str, int], int] = {}
    for row in rows:
        key = row["of"], row["node"]
        best[key] = min(best.get(key, row["far"]), row["far"])
    assert best == shortest()
    assert {row["times"] for row in rows} == {1}
    again = Counter((row["of"], row["node"], row["far"]) for row in rows)
    assert set(again.values()) == {1}


@pytest.mark.parametrize("peers", [1, 3])
def test_what_goes_round_finds_the_state_of_its_group(peers: int) -> None:
    check(finish(Bench(spec(), FUNCTIONS, peers={"work": peers, "turn": 2})))


def draw(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    """A segment takes the next number of each node that it comes to, which nobody else gets."""
    node = segment["node"]
    state.calls = (state.calls or 0) + 1
    left, drawn = segment["left"] - 1, [*segment["drawn"], [node, state.calls]]
    to = EDGES[node][left % len(EDGES[node])]
    return {**segment, "node": to, "left": left, "drawn": drawn, "news": left == 0}


WALKS = [{"node": n % NODES, "n": n, "left": 3 + n % 5, "drawn": []} for n in range(20)]


def numbers(same: Any = lambda each: each) -> Bench:
    made = spec()
    made["catalog"][0]["options"]["segments"] = WALKS
    made["workflow"] = [["read", "work"], ["work", "turn"], ["turn", "write"]]
    made["catalog"] = [each for each in made["catalog"] if each["name"] != "count"]
    made["windows"], made["triggers"] = [], []
    made["flowConditions"][0]["to"] = ["write"]
    return Bench(made, {"m:relax": draw, "m:same": same}, peers={"work": 2, "turn": 2})


def check_numbers(rows: list[dict[str, Any]]) -> None:
    """Each walk has arrived, and at each node the numbers have been drawn once, in a row. The
    output may have a row again, as it was."""
    assert {row["n"] for row in rows} == set(range(len(WALKS)))
    first = {row["n"]: row for row in reversed(rows)}
    assert all(row == first[row["n"]] for row in rows)
    rows = [*first.values()]
    assert all(len(row["drawn"]) == 3 + row["n"] % 5 for row in rows)
    drawn: dict[int, list[int]] = {}
    for node, number in (each for row in rows for each in row["drawn"]):
        drawn.setdefault(node, []).append(number)
    assert all(sorted(each) == [*range(1, len(each) + 1)] for each in drawn.values())


@pytest.mark.short(8)
@pytest.mark.parametrize("rounds", range(2, 92, 3))
@pytest.mark.parametrize("task", ["work", "turn"])
def test_whoever_dies_no_number_is_drawn_twice(task: str, rounds: int) -> None:
    bench = numbers()
    pass_time(bench, rounds)
    bench.crash(bench.task(task))
    check_numbers(finish(bench))


@pytest.mark.short(4)
@pytest.mark.parametrize("rounds", range(4, 64, 8))
@pytest.mark.parametrize("task", ["work", "turn", "read", "count"])
def test_whoever_dies_each_segment_counts_once(task: str, rounds: int) -> None:
    bench = Bench(spec(), FUNCTIONS, peers={"work": 2})
    pass_time(bench, rounds)
    bench.crash(bench.task(task))
    check(finish(bench))


def test_nothing_goes_on_or_is_acked_before_the_state_log_has_it() -> None:
    seen: list[Any] = []
    bench = numbers(lambda each: seen.append(each) or each)
    bench.start()
    for _ in range(10):
        bench.round(["read"])
    bench.slow = []
    bench.settle(["work", "turn", "write"])
    source = bench.task("read").runtime.source
    assert source is not None
    assert (seen, source.completed) == ([], 0)
    assert bench.slow, "chunks"
    bench.finish_slow()
    bench.settle(["work", "turn", "write"])
    assert seen
    check_numbers(finish(bench))
    assert len(bench.written("write")) == len(WALKS)


def test_what_was_made_is_forgotten_when_nothing_of_it_comes_again() -> None:
    bench = numbers()
    finish(bench)
    operators = [bench.task("work", n).allocation.keeper.operator for n in range(2)]
    assert sum(len(each.made_before._of_root) for each in operators) > 0
    for each in operators:
        each.forget({0: 10**6, 1: 10**6})
        assert not each.made_before._of_root
        assert not len(each.made_before._made)


@pytest.mark.parametrize("rounds", [10, 30, 50])
def test_groups_move_with_what_was_made(rounds: int) -> None:
    bench = numbers()
    pass_time(bench, rounds)
    bench.rewire(work=3)
    pass_time(bench, rounds // 2)
    bench.rewire(work=1)
    check_numbers(finish(bench))


def test_what_would_go_back_once_more_is_a_dead_letter_and_its_call_counts() -> None:
    made = spec()
    made["catalog"][0]["options"]["segments"] = WALKS
    made["workflow"] = [["read", "work"], ["work", "write"], ["work", "letters"]]
    made["catalog"] = [each for each in made["catalog"] if each["name"] not in ("turn", "count")]
    made["catalog"][1] |= {"loopTo": "work", "lapsMax": 4, "deadLetter": "letters"}
    made["catalog"].append({"name": "letters", "type": "output", "plugin": "blackhole"})
    made["windows"], made["triggers"] = [], []
    for each in made["flowConditions"]:
        each["from"] = ["work"]
    made["flowConditions"][0]["to"] = ["write"]
    bench = Bench(made, {**FUNCTIONS, "m:relax": draw}, peers={"work": 2})
    finish(bench)
    assert {row["n"] for row in bench.written("write")} == {n for n in range(20) if n % 5 < 3}
    letters = bench.written("letters")
    assert {each["segment"]["n"] for each in letters} == {n for n in range(20) if n % 5 >= 3}
    assert "gone back to work as often as it may, lapsMax: 4" in str(letters[0])
