"""A job upgrades another one, on the bench: counts continue from those of the old job."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.examples import some_of
from tests.support.jobs.bench import MOMENT_S, ROUNDS_MAX, Bench

from onyx.settings import Settings, StateSettings

WORDS = [{"n": n, "word": "abcdefgh"[n * n % 7], "time": n * 1_000} for n in range(60)]
EXPECTED = Counter(segment["word"] for segment in WORDS)
EAGER = Settings(state=StateSettings(chunk_segments_max=4, snapshot_bytes_min=1))
OLD = {"from": "job-1"}


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    return {"word": state_event["group_key"], "count": state}


def same(segment: dict[str, Any]) -> dict[str, Any]:
    return segment


FUNCTIONS = {"m:emitted": emitted, "m:same": same}
GROUPED = {"groupByKey": "word", "minPeers": 1, "fluxPolicy": "continue"}


def spec(kind: str = "reduce", guarantee: str = "exactly-once", **more: Any) -> dict[str, Any]:
    """Words are counted by threes, the threes are added up, and the sums are emitted at the end."""
    repeats = {} if guarantee == "exactly-once" else {"deduplicate": False}
    grouped = {"batchSize": 5, **GROUPED, **repeats}
    return {
        "guarantee": guarantee,
        "workflow": [
            ["read", "pass"],
            ["pass", "count"],
            ["count", "add"],
            ["add", "write"],
            *more.pop("beside", []),
        ],
        "catalog": [
            {
                "name": "read",
                "type": "input",
                "plugin": "sequence",
                "batchSize": 5,
                "options": {"segments": WORDS, "partitions": 2, **more.pop("read", {})},
            },
            {"name": "pass", "type": "function", "fn": "m:same", "batchSize": 5},
            {"name": "count", "type": kind, "fn": "m:same", **grouped, **more.pop("count", {})},
            {"name": "add", "type": "reduce", **grouped},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5}
            | more.pop("write", {}),
        ],
        "windows": [
            {"id": "threes", "task": "count", "type": "global", "aggregation": "count"},
            {"id": "sums", "task": "add", "type": "global", "aggregation": ["sum", "count"]},
        ],
        "triggers": [
            {
                "windowId": "threes", "id": "three", "type": "segment",
                "threshold": [3, "elements"], "refinement": "discarding", "emit": "m:emitted",
            },
            {
                "windowId": "sums", "id": "end", "type": "segment",
                "threshold": [1000, "elements"], "refinement": "accumulating", "emit": "m:emitted",
            },
        ],
        **more,
    }  # fmt: skip


def counts(*benches: Bench) -> Counter[str]:
    """What was written last of each word, by one job after the other."""
    written = [segment for bench in benches for segment in bench.written("write")]
    return Counter({segment["word"]: segment["count"] for segment in written})


def stopped(rounds: int, peers: int = 2, **more: Any) -> Bench:
    """A job that was killed after so many rounds."""
    bench = Bench(spec(**more), FUNCTIONS, {"count": peers}, settings=EAGER)
    run(bench, rounds)
    return bench


def run(bench: Bench, rounds: int) -> None:
    for _ in range(rounds):
        bench.round()
        bench.clock.advance(0.1)  # frontiers are stored every few seconds


def after(old: Bench, peers: int = 2, **more: Any) -> Bench:
    more.setdefault("upgrade", OLD)
    return Bench(spec(**more), FUNCTIONS, {"count": peers}, settings=EAGER, after=old)


@pytest.mark.short(3)
@pytest.mark.parametrize("rounds", some_of(range(0, 176, 8)))
def test_counts_are_exact_whenever_the_old_job_stopped(rounds: int) -> None:
    old = stopped(rounds)
    assert not old.completed
    new = after(old, peers=1 + rounds % 3)
    new.settle()
    assert new.completed
    assert counts(old, new) == EXPECTED


@pytest.mark.parametrize("rounds", [20, 40, 80])
def test_a_job_that_is_drained_before_it_has_begun_completes_what_the_old_job_had_read(
    rounds: int,
) -> None:
    old = stopped(rounds)
    source = old.task("read").runtime.source
    assert source is not None
    sent = sum(each.next_position for each in source.partitions.values())
    new = after(old)
    new.drain()
    new.settle()
    assert new.completed
    assert sum(counts(old, new).values()) >= sent > 0


@pytest.mark.short(2)
@pytest.mark.parametrize("rounds", some_of(range(12, 160, 10)))
def test_counts_are_exact_though_the_old_job_does_not_know_yet(rounds: int) -> None:
    """Its peers go on until they hear that it was killed, and whatever they do counts or not."""
    old = stopped(rounds)
    new = after(old)
    for _ in range(ROUNDS_MAX):
        moved = new.round()
        if old is not None and not new.completed:
            moved |= old.round()
        for bench in (old, new):
            bench.clock.advance(MOMENT_S)
        if new.completed and not moved:
            break
    assert new.completed
    assert counts(new) == EXPECTED


@pytest.mark.short(2)
@pytest.mark.parametrize("rounds", some_of(range(0, 60, 4)))
def test_counts_are_exact_though_a_peer_of_the_new_job_dies_while_it_takes_over(
    rounds: int,
) -> None:
    new = after(stopped(40))
    run(new, rounds)
    new.crash(new.task("count", rounds % 2))
    for _ in range(rounds // 3):
        new.round()
    new.rewire(count=3, add=2)
    new.settle()
    assert new.completed
    assert counts(new) == EXPECTED


@pytest.mark.parametrize("rounds", range(20, 100, 20))
def test_a_third_job_goes_on_where_the_second_one_stopped(rounds: int) -> None:
    second = after(stopped(rounds // 2), peers=3)
    run(second, rounds)
    third = after(second, upgrade={"from": second.id})
    third.settle()
    assert third.completed
    assert counts(third) == EXPECTED


@pytest.mark.parametrize("rounds", some_of(range(10, 170, 16)))
def test_an_output_writes_exactly_once_over_both_jobs(rounds: int, tmp_path: Path) -> None:
    options = {"path": str(tmp_path), "format": "jsonl", "rollSegments": 3}
    more = {"write": {"plugin": "files", "options": options}, "beside": [["pass", "write"]]}
    old = stopped(rounds, **more)
    for task in list(old.tasks.values()):
        old.stop(task)
    new = after(old, **more)
    new.settle()
    assert new.completed
    lines = [line for part in tmp_path.glob("part-*") for line in part.read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    assert sorted(row["n"] for row in rows if "n" in row) == list(range(60))
    assert {row["word"]: row["count"] for row in rows if "count" in row} == EXPECTED


def test_what_the_old_job_has_read_is_not_read_again() -> None:
    new = after(stopped(110))
    new.start()
    frontiers = [
        each.pending.frontier for each in sources(new)[0].runtime.source.partitions.values()
    ]
    assert len(frontiers) == 2
    assert min(frontiers) > 0


def test_an_input_that_is_initialized_reads_from_the_beginning() -> None:
    new = after(stopped(60), upgrade={**OLD, "tasks": {"read": "initialize"}})
    new.settle()
    assert new.completed
    assert all(counts(new)[word] > EXPECTED[word] for word in EXPECTED)


def test_a_window_that_is_initialized_begins_empty() -> None:
    old = Bench(spec(), FUNCTIONS, settings=EAGER)
    while sum(task.runtime.source.completed for task in sources(old)) < 30:
        old.round()
    new = after(old, upgrade={**OLD, "windows": {"sums": "initialize"}})
    new.settle()
    assert new.completed
    assert 0 < counts(new).total() < EXPECTED.total()


def sources(bench: Bench) -> list[Any]:
    return [
        each for each in bench.tasks.values() if each.loaded and each.runtime.source is not None
    ]


def test_a_new_partition_is_read_beside_those_that_are_carried_over() -> None:
    old = stopped(50)
    new = after(old, read={"partitions": 3})
    new.settle()
    assert new.completed


def test_a_job_does_not_begin_where_its_state_would_be_lost_silently() -> None:
    new = after(stopped(30), count={"groupByKey": "n"})
    for _ in range(50):
        new.round()
    assert any("grouping was word and is n" in str(each) for each in new.exceptions)
    assert not new.written("write")


def test_a_job_does_not_begin_when_the_old_one_has_been_forgotten() -> None:
    old = stopped(30)
    old._replica = replace(old._replica, records=old._replica.records.delete(old.id))
    new = after(old)
    for _ in range(50):
        new.round()
    assert any("has forgotten" in str(each) for each in new.exceptions)


def test_at_least_once_nothing_that_was_counted_is_lost() -> None:
    new = after(stopped(50, guarantee="at-least-once"), guarantee="at-least-once")
    new.settle()
    assert new.completed
    assert all(counts(new)[word] >= EXPECTED[word] for word in EXPECTED)
