"""Tasks with windows on the bench: what they count, through crashes, rescaling and retries."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import Any

import pytest
from tests.support.examples import some_of
from tests.support.jobs.bench import GROUP, JOB, Bench

from onyx.storage.interface import MemoryBlobStore
from onyx.transport.interface import Channel, Control, ControlKind

WORDS = [{"n": n, "word": "abcdefgh"[n * n % 7], "time": n * 1_000} for n in range(60)]
EXPECTED = Counter(segment["word"] for segment in WORDS)

SELDOM = {"type": "segment", "threshold": [1000, "elements"]}


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    group, lower = state_event["group_key"], state_event["lower_bound"]
    return {"word": group, "from": lower, "count": state}


def spec(
    kind: str = "reduce", guarantee: str = "exactly-once", grouped: bool = True, **more: Any
) -> dict[str, Any]:
    group = {"groupByKey": "word", "minPeers": 1, "fluxPolicy": "continue"} if grouped else {}
    repeats = {} if guarantee == "exactly-once" else {"deduplicate": False}
    window = {"id": "words", "task": "count", "type": "global", "aggregation": "count"}
    trigger = {"windowId": "words", "id": "end", **more.pop("trigger", SELDOM)}
    read = {"options": {"segments": WORDS, "partitions": 2}, **more.pop("read", {})}
    return {
        "guarantee": guarantee,
        "workflow": [["read", "count"], ["count", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 5, **read},
            {"name": "count", "type": kind, "fn": "m:same", "batchSize": 5, **group, **repeats},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
        ],
        "windows": [window | more.pop("window", {})],
        "triggers": [
            {**trigger, "refinement": "accumulating", "emit": "m:emitted"},
        ],
        **more,
    }


def same(segment: dict[str, Any]) -> dict[str, Any]:
    return segment


FUNCTIONS = {"m:emitted": emitted, "m:same": same}


def counts(bench: Bench) -> Counter[str]:
    """What was written for the last time of each word."""
    found: Counter[str] = Counter()
    for segment in bench.written("write"):
        if "count" in segment:
            found[segment["word"]] = segment["count"]
    return found


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_every_group_is_counted_and_emitted_once_when_the_job_ends(guarantee: str) -> None:
    bench = Bench(spec(guarantee=guarantee), FUNCTIONS, peers={"count": 2})
    bench.settle()
    assert bench.completed
    written = [(segment["word"], segment["count"]) for segment in bench.written("write")]
    assert sorted(written) == sorted(EXPECTED.items())


def test_segments_of_a_function_go_on_beside_what_triggers_emit() -> None:
    bench = Bench(spec(kind="function"), FUNCTIONS)
    bench.settle()
    assert bench.completed
    passed = [segment for segment in bench.written("write") if "n" in segment]
    assert sorted(segment["n"] for segment in passed) == list(range(60))
    assert counts(bench) == EXPECTED


def test_a_state_without_groups_has_one_owner_however_many_peers_there_are() -> None:
    bench = Bench(spec(grouped=False), FUNCTIONS, peers={"count": 3})
    bench.settle()
    assert bench.completed
    assert [segment["count"] for segment in bench.written("write")] == [60]


def test_nothing_is_acked_before_the_state_log_has_it() -> None:
    bench = Bench(spec(), FUNCTIONS)
    bench.start()
    bench.slow = []
    bench.settle()
    source = bench.task("read").runtime.source
    assert source is not None
    assert source.completed == 0
    bench.finish_slow()
    bench.settle()
    assert source.completed == 60
    assert bench.completed


@pytest.mark.short(6)
@pytest.mark.parametrize("rounds", some_of(range(0, 90, 3)))
@pytest.mark.parametrize("kind", ["reduce", "function"])
def test_counts_are_exact_whenever_a_peer_dies(kind: str, rounds: int) -> None:
    bench = Bench(spec(kind=kind), FUNCTIONS, peers={"count": 2})
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("count", rounds % 2))
    bench.settle()
    assert bench.completed
    assert counts(bench) == EXPECTED
    assert all(
        EXPECTED[each["word"]] == each["count"]
        for each in bench.written("write")
        if "count" in each
    )


@pytest.mark.short(10)
@pytest.mark.parametrize("rounds", range(0, 90, 7))
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 4)])
def test_counts_are_exact_when_the_task_is_rescaled(before: int, after: int, rounds: int) -> None:
    bench = Bench(spec(), FUNCTIONS, peers={"count": before})
    for _ in range(rounds):
        bench.round()
    bench.rewire(count=after)
    for _ in range(rounds // 3):
        bench.round()
    bench.rewire(count=before)
    bench.settle()
    assert bench.completed
    assert counts(bench) == EXPECTED


def test_state_that_is_gone_kills_the_job_instead_of_beginning_anew() -> None:
    bench = Bench(spec(), FUNCTIONS, peers={"count": 2})
    bench.start()
    bench.store = MemoryBlobStore()
    bench.rewire(count=1)
    bench.settle()
    assert "submit the job again" in bench.exceptions[0]["detail"]
    assert bench.exceptions[0]["task"] == "count"
    assert bench.proposals("kill-job")
    assert bench.written("write") == []


def test_trees_that_are_replayed_change_nothing() -> None:
    bench = Bench(spec(read={"pendingTimeout": 1_000}), FUNCTIONS)
    bench.start()
    bench.slow = []
    for _ in range(50):
        bench.round()
        bench.clock.advance(0.5)
    bench.finish_slow()
    bench.settle()
    assert bench.completed
    assert counts(bench) == EXPECTED


def test_timers_do_not_fire_after_the_end() -> None:
    timer = {"type": "timer", "period": [1, "seconds"]}
    bench = Bench(spec(trigger=timer), FUNCTIONS)
    bench.start()
    bench.settle(["read", "count"])
    keeper = bench.task("count").allocation.keeper
    assert keeper is not None
    assert set(keeper.shards) == keeper.closed
    emitted = keeper.emissions.added
    bench.clock.advance(10.0)
    bench.settle(["read", "count"])
    assert keeper.emissions.added == emitted == len(EXPECTED)


def test_a_task_ends_though_control_items_keep_coming() -> None:
    bench = Bench(spec(), FUNCTIONS)
    bench.start()
    count, read = bench.task("count"), bench.task("read")
    channel = Channel(JOB, count.allocation.wiring.version, read.peer, count.peer)
    for epoch in range(1_000):
        bench.transport.send(GROUP, channel, Control(ControlKind.EPOCH, epoch=epoch))
        bench.round()
        bench.clock.advance(0.01)
    assert bench.completed
    assert counts(bench) == EXPECTED


WINDOWS = {
    "type": "fixed",
    "windowKey": "time",
    "range": [10, "seconds"],
    "allowedLateness": [0, "seconds"],
}


def per_window() -> Counter[tuple[str, int]]:
    return Counter((each["word"], each["time"] // 10_000 * 10_000) for each in WORDS)


@pytest.mark.short(6)
@pytest.mark.parametrize("crash", [None, *range(5, 120, 6)])
def test_extents_fire_when_the_watermark_has_passed_them(crash: int | None) -> None:
    """Partitions are read in turn, so their times stay near each other."""
    bench = Bench(
        spec(
            read={"watermarkKey": "time", "allowedDisorder": [5, "seconds"]},
            window=WINDOWS,
            trigger={"type": "watermark"},
        ),
        FUNCTIONS,
        peers={"count": 2},
    )
    for round_number in range(400):
        bench.round()
        bench.clock.advance(0.01)
        if round_number == crash:
            bench.crash(bench.task("count"))
    bench.settle()
    assert bench.completed
    written = {(each["word"], each["from"], each["count"]) for each in bench.written("write")}
    assert written == {(word, start, n) for (word, start), n in per_window().items()}


DEEP: list[Any] = reduce(lambda inner, _: [inner], range(20), [])


@pytest.mark.parametrize(
    ("segment", "reported"),
    [
        (
            {"word": "a"},
            "task count: a segment has no 'n', its uniquenessKey, without which repeats cannot",
        ),
        ({"n": None, "word": "a"}, "task count: a segment has no 'n', its uniquenessKey"),
        ({"n": DEEP, "word": "a"}, "task count: uniquenessKey 'n': a group key is nested deeper"),
        ({"n": 1, "word": DEEP}, "groupByKey word of task count: a group key is nested deeper"),
    ],
)
def test_a_segment_without_a_usable_uniqueness_key_kills_the_job(
    segment: dict[str, Any], reported: str
) -> None:
    job = spec(read={"options": {"segments": [segment, segment]}})
    job["catalog"][1]["uniquenessKey"] = "n"
    bench = Bench(job, FUNCTIONS)
    bench.settle()
    assert reported in bench.exceptions[0]["detail"]
    assert bench.proposals("kill-job")
