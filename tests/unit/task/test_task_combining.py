"""Tasks that fold segments for windowed children: what these count, through crashes and retries."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from tests.support.jobs.bench import Bench

from onyx.task.channels.outbox import Outbox
from onyx.task.phases import apply as receiving
from onyx.transport.interface import Partial

SEGMENTS = [{"n": n, "word": "abc"[n * n % 3], "time": n * 1_000} for n in range(240)]
FORMATS = ["dicts", "arrow"]
WIDTH_MS = 60_000


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    group, lower = state_event["group_key"], state_event["lower_bound"]
    return {"word": group, "from": lower, "found": state}


def spec(segments: Any = SEGMENTS, grouped: bool = True, **more: Any) -> dict[str, Any]:
    group = {"groupByKey": "word", "minPeers": 1, "fluxPolicy": "continue"} if grouped else {}
    window = {
        "id": "sums", "task": "add", "type": "fixed", "windowKey": "time",
        "range": [1, "minute"], "aggregation": ["sum", "n"],
    }  # fmt: skip
    read = {"watermarkKey": "time", "options": {"segments": segments, "partitions": 2}}
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "pass"], ["pass", "add"], ["add", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 30}
            | read | more.pop("read", {}),
            {"name": "pass", "type": "function", "fn": "m:same", "batchSize": 30},
            {"name": "add", "type": "reduce", "batchSize": 30, "combine": True, **group}
            | more.pop("add", {}),
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 30},
        ],
        "windows": [window | more.pop("window", {})],
        "triggers": [
            {"windowId": "sums", "id": "end", "type": "watermark", "refinement": "accumulating",
             "emit": "m:emitted"}
        ],
        **more,
    }  # fmt: skip


FUNCTIONS = {"m:emitted": emitted, "m:same": lambda segment: segment}


def of(batch_format: str, **more: Any) -> dict[str, Any]:
    """With columns, of which the function task takes dicts as before."""
    found = spec(**more)
    if batch_format == "arrow":
        for entry in found["catalog"]:
            if entry["name"] != "pass":
                entry["batchFormat"] = "arrow"
    return found


def sums(segments: Any = SEGMENTS) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = defaultdict(int)
    for segment in segments:
        found[segment["word"], segment["time"] // WIDTH_MS * WIDTH_MS] += segment["n"]
    return dict(found)


def last_sums(bench: Bench) -> dict[tuple[str, int], int]:
    return {(each["word"], each["from"]): each["found"] for each in bench.written("write")}


def run_slowly(bench: Bench) -> None:
    """So that watermarks come between batches, and what rests is read again."""
    for _ in range(300):
        bench.round()
        bench.clock.advance(0.05)
    bench.settle()


@pytest.fixture
def partials(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many segments were sent to `add` as states, and how many as they are."""
    counts: Counter[str] = Counter()
    put_to, put = Outbox.put_to, Outbox.put

    def counted_to(self: Outbox, site: Any, item: Any) -> None:
        if str(site.peer).startswith("add") and hasattr(item, "roots"):
            counts["states" if isinstance(item, Partial) else "segments"] += len(item)
        put_to(self, site, item)

    def counted(self: Outbox, child: Any, batch: Any) -> None:
        if child.task == "add":
            counts["segments"] += len(batch)
        put(self, child, batch)

    monkeypatch.setattr(Outbox, "put_to", counted_to)
    monkeypatch.setattr(Outbox, "put", counted)
    return counts


@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize("peers", [1, 3])
def test_states_travel_in_place_of_segments(
    batch_format: str, peers: int, partials: Counter[str]
) -> None:
    bench = Bench(of(batch_format), FUNCTIONS, peers={"add": peers})
    bench.settle()
    assert bench.completed
    assert last_sums(bench) == sums()
    assert partials["states"] > 0
    assert partials.total() == len(SEGMENTS)


@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize("rounds", [12, 25, 40, 60])
def test_after_crashes_each_segment_counts_once(batch_format: str, rounds: int) -> None:
    bench = Bench(of(batch_format), FUNCTIONS, peers={"add": 2, "pass": 2})
    for name in ("read", "add", "pass"):
        for _ in range(rounds):
            bench.round()
        bench.crash(bench.task(name))
    bench.settle()
    assert bench.completed
    assert last_sums(bench) == sums()


def test_what_was_applied_in_part_is_read_again_as_segments(
    monkeypatch: pytest.MonkeyPatch, partials: Counter[str]
) -> None:
    asked: list[int] = []
    ask = receiving.ask_again

    def noted(allocation: Any, roots: Any, most: int) -> None:
        asked.append(len(roots))
        ask(allocation, roots, most)

    monkeypatch.setattr(receiving, "ask_again", noted)
    bench = Bench(of("dicts", read={"maxPending": 60}), FUNCTIONS)
    bench.start()
    while not bench.task("add").allocation.keeper.state.applied.columns()[0].size:
        bench.round(["read", "pass", "add"])  # no output acks, so nothing completes
    bench.crash(bench.task("read"))
    bench.task("pass").runtime.sizing.segments_max = 30
    bench.settle()
    assert bench.completed
    assert last_sums(bench) == sums()
    assert partials["segments"] >= sum(asked)


@pytest.mark.parametrize("batch_format", FORMATS)
@pytest.mark.parametrize("combine", [False, True])
def test_segments_that_are_late_go_where_they_would(
    batch_format: str, combine: bool, partials: Counter[str]
) -> None:
    late = [{"n": 1_000 + n, "word": "a", "time": 0} for n in range(4)]
    segments = [*SEGMENTS[:150], *late, *SEGMENTS[150:]]
    more = of(
        batch_format,
        segments=segments,
        add={"combine": combine},
        window={"allowedLateness": [0, "minutes"], "lateTo": "late"},
    )
    more["catalog"][0]["options"]["partitions"] = 1
    more["workflow"].append(["add", "late"])
    more["catalog"].append({"name": "late", "type": "output", "plugin": "blackhole"})
    bench = Bench(more, FUNCTIONS)
    run_slowly(bench)
    assert bench.completed
    assert [each["n"] for each in bench.written("late")] == [1_000, 1_001, 1_002, 1_003]
    assert last_sums(bench) == sums()
    assert bool(partials["states"]) is combine


def test_a_partial_that_may_be_late_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyx.windows.task_windows.TaskWindows.any_late", lambda *_: True)
    bench = Bench(of("dicts", window={"allowedLateness": [0, "minutes"]}), FUNCTIONS)
    run_slowly(bench)
    assert bench.completed
    assert last_sums(bench) == sums()


def test_a_task_without_groups_is_combined(partials: Counter[str]) -> None:
    more = of("dicts", grouped=False)
    more["triggers"][0]["emit"] = "m:total"
    functions = {**FUNCTIONS, "m:total": lambda *of: {"word": "", "from": of[3]["lower_bound"],
                                                      "found": of[4]}}  # fmt: skip
    bench = Bench(more, functions)
    bench.settle()
    assert bench.completed
    assert last_sums(bench) == sums([each | {"word": ""} for each in SEGMENTS])
    assert partials["segments"] == 0


def test_many_groups_travel_as_segments(partials: Counter[str]) -> None:
    segments = [each | {"word": str(each["n"])} for each in SEGMENTS]
    bench = Bench(of("dicts", segments=segments), FUNCTIONS)
    bench.settle()
    assert last_sums(bench) == sums(segments)
    assert partials["states"] == 0


def test_a_segment_that_cannot_be_added_fails_the_task_that_has_the_windows() -> None:
    segments = [*SEGMENTS[:50], {"word": "a", "time": 50_000}, *SEGMENTS[50:]]
    bench = Bench(of("dicts", segments=segments), FUNCTIONS)
    bench.settle()
    assert not bench.completed
    assert {report["task"] for report in bench.exceptions} == {"add"}
