"""In a loop over a function with state each segment draws one number of its group in each lap,
whatever fans in, crashes, moves, or is full."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.examples import examples
from tests.support.jobs.bench import Bench

from onyx.settings import Settings

GROUPS = 5


def draw(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    """The next number of the group, which nobody else gets; then on to another group."""
    state.drawn = (state.drawn or 0) + 1
    mine = [*segment["mine"], [segment["at"], state.drawn]]
    to = (segment["at"] * 2 + segment["n"]) % GROUPS
    return {**segment, "at": to, "mine": mine, "left": segment["left"] - 1}


def job(laps: list[int], batch: int) -> dict[str, Any]:
    segments = [{"n": n, "at": n % GROUPS, "left": left, "mine": []} for n, left in enumerate(laps)]
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "pass"], ["pass", "draw"], ["draw", "turn"], ["turn", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": batch,
             "maxPending": 8, "options": {"segments": segments, "partitions": 2}},
            {"name": "pass", "type": "function", "fn": "m:same", "batchSize": batch},
            {"name": "draw", "type": "function", "fn": "m:draw", "batchSize": batch,
             "groupByKey": "at", "fluxPolicy": "continue", "state": {"drawn": "value[int]"}},
            {"name": "turn", "type": "function", "fn": "m:same", "batchSize": batch,
             "loopTo": "pass", "lapsMax": 9},
            {"name": "write", "type": "output", "plugin": "blackhole"},
        ],
        "flowConditions": [
            {"from": ["turn"], "to": ["pass"], "predicate": [">", "left", 0]},
            {"from": ["turn"], "to": ["write"], "predicate": ["==", "left", 0]},
        ],
    }  # fmt: skip


FUNCTIONS = {"m:draw": draw, "m:same": lambda each: each}


@settings(max_examples=examples(30), deadline=None)
@given(
    laps=st.lists(st.integers(1, 8), min_size=1, max_size=14),
    batch=st.integers(1, 6),
    room=st.integers(1, 9),
    peers=st.integers(1, 3),
    crashes=st.lists(
        st.tuples(
            st.sampled_from(["read", "pass", "draw", "turn", "more", "fewer"]),
            st.integers(1, 60),
        ),
        max_size=4,
    ),
)
def test_each_lap_draws_one_number(
    laps: list[int], batch: int, room: int, peers: int, crashes: list[tuple[str, int]]
) -> None:
    small = replace(Settings(), task=replace(Settings().task, inbox_segments_max=room))
    bench = Bench(job(laps, batch), FUNCTIONS, peers={"draw": peers, "turn": 2}, settings=small)
    for what, rounds in crashes:
        for _ in range(rounds):
            bench.round()
            bench.clock.advance(0.02)
        if bench.completed:
            break
        if what in ("more", "fewer"):
            bench.rewire(draw=3 if what == "more" else 1)
        else:
            bench.crash(bench.task(what))
    for _ in range(300):
        if bench.completed:
            break
        bench.settle()
        bench.clock.advance(0.5)
    assert bench.completed, bench.exceptions
    rows = bench.written("write")
    first = {row["n"]: row for row in reversed(rows)}
    assert all(row == first[row["n"]] for row in rows), "an output may have a row again, as it was"
    assert [len(first[n]["mine"]) for n in range(len(laps))] == laps
    drawn: dict[int, list[int]] = {}
    for group, number in (each for row in first.values() for each in row["mine"]):
        drawn.setdefault(group, []).append(number)
    assert all(sorted(each) == [*range(1, len(each) + 1)] for each in drawn.values())
