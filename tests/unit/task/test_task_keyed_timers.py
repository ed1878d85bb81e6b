"""Timers of functions with state, and states that nobody has changed for long."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.jobs.bench import Bench

from onyx.task.state.keeper import StateKeeper

EVENTS = [{"n": n, "user": "abc"[n % 3], "time": n * 1_000} for n in range(60)]
GAP_MS = 5_000


def visit(segment: dict[str, Any], state: Any) -> dict[str, Any] | None:
    """A session ends when nothing has come for five seconds. Event time may lag behind, so that
    what belongs to the next session comes first."""
    due, ended = state.timer("gone"), None
    if due is not None and due <= segment["time"]:
        ended = session(state, due)
    state.events.append(segment["n"])
    state.set_timer("gone", segment["time"] + GAP_MS)
    return ended


def gone(timer: Any, state: Any) -> dict[str, Any]:
    return session(state, timer.due_ms)


def session(state: Any, due_ms: int) -> dict[str, Any]:
    row = {"user": state.key, "events": list(state.events), "due": due_ms}
    state.clear()
    return row


def bench_of(fn: Any, on_timer: Any, events: list[dict[str, Any]], **task: Any) -> Bench:
    spec = {
        "guarantee": "exactly-once",
        "workflow": [["read", "visit"], ["visit", "write"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 5,
             "watermarkKey": "time", "options": {"segments": events, "partitions": 1}},
            {"name": "visit", "type": "function", "batchSize": 5, "fn": "m:fn",
             "groupByKey": "user", "fluxPolicy": "continue", "state": {"events": "list"},
             "onTimer": "m:on_timer", **task},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
        ],
    }  # fmt: skip
    return Bench(spec, {"m:fn": fn, "m:on_timer": on_timer}, peers={"visit": 2})


def pass_time(bench: Bench, rounds: int) -> None:
    """Rounds with time between them, so that watermarks go on."""
    for _ in range(rounds):
        bench.round()
        bench.clock.advance(0.05)


def paused() -> list[dict[str, Any]]:
    """Users that come again after a pause, some of them."""
    users = {"a": range(0, 12_000, 1_000), "b": (1_500, 20_500), "c": (3_000, 4_000)}
    found = [{"n": t, "user": user, "time": t} for user, times in users.items() for t in times]
    found.append({"n": 60_000, "user": "end", "time": 60_000})
    return sorted(found, key=lambda each: each["time"])


SESSIONS = {
    ("a", tuple(range(0, 12_000, 1_000)), 16_000),
    ("b", (1_500,), 6_500),
    ("b", (20_500,), 25_500),
    ("c", (3_000, 4_000), 9_000),
    ("end", (60_000,), 65_000),
}


@pytest.mark.parametrize("rounds", range(0, 80, 5))
def test_timers_by_event_time_fire_once_whenever_a_peer_dies(rounds: int) -> None:
    bench = bench_of(visit, gone, paused())
    pass_time(bench, rounds)
    if rounds:
        bench.crash(bench.task("visit", rounds % 2))
    bench.settle()
    assert bench.completed
    written = bench.written("write")
    assert {(row["user"], tuple(row["events"]), row["due"]) for row in written} == SESSIONS


def test_timers_by_processing_time_fire_when_the_clock_has_come_to_them() -> None:
    def later(segment: dict[str, Any], state: Any) -> None:
        state.events.append(segment["n"])
        state.set_timer("later", state.now_ms + 3_600_000, clock="processing-time")

    bench = bench_of(later, gone, EVENTS)
    source = bench.task("read")
    bench.settle(["visit", "write"])
    for _ in range(30):  # the input does not end
        bench.round()
    assert bench.written("write") == []
    bench.clock.advance(3_601)
    bench.settle(["visit", "write"])
    fired = bench.written("write")
    assert {row["user"] for row in fired} <= {"a", "b", "c"}
    assert len(fired) > 0
    assert source is bench.task("read")
    bench.settle()
    assert bench.completed
    events = sorted(n for row in bench.written("write") for n in row["events"])
    assert events == [event["n"] for event in EVENTS]


def test_a_timer_may_set_itself_again_until_the_job_ends() -> None:
    def begin(segment: dict[str, Any], state: Any) -> None:
        if state.timer("tick") is None:
            state.set_timer("tick", segment["time"] + 10_000)

    def tick(timer: Any, state: Any) -> dict[str, Any]:
        state.set_timer(timer.name, timer.due_ms + 10_000)
        return {"user": state.key, "due": timer.due_ms}

    bench = bench_of(begin, tick, EVENTS)
    pass_time(bench, 200)
    bench.settle()
    assert bench.completed
    for user, first_ms in {"a": 10_000, "b": 11_000, "c": 12_000}.items():
        due = [row["due"] for row in bench.written("write") if row["user"] == user]
        assert due == [first_ms + n * 10_000 for n in range(len(due))]
        assert due[-1] > 50_000


def begin(segment: dict[str, Any], state: Any) -> None:
    if state.timer("tick") is None:
        state.set_timer("tick", segment["time"] + 10_000)


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("crash", [None, 20, 60])
def test_at_the_end_timers_fire_up_to_the_last_event_however_fast_it_was_read(
    pause_s: float, crash: int | None
) -> None:
    seen: set[Any] = set()

    def tick(timer: Any, state: Any) -> dict[str, Any]:
        seen.add(state.event_time_ms)
        state.set_timer(timer.name, timer.due_ms + 10_000)
        return {"user": state.key, "due": timer.due_ms}

    bench = bench_of(begin, tick, EVENTS)
    for number in range(200):
        if number == crash:
            bench.crash(bench.task("visit", 1))
        bench.round()
        bench.clock.advance(pause_s)
    bench.settle()
    assert bench.completed
    due = {(row["user"], row["due"]) for row in bench.written("write")}
    last = {"a": 60_000, "b": 61_000, "c": 62_000}
    assert due == {
        (user, at) for user, end in last.items() for at in range(end - 50_000, end + 1, 10_000)
    }
    assert None not in seen
    assert max(seen) == 59_000


def test_at_the_end_a_chain_of_timers_goes_on_while_it_is_due() -> None:
    """A chain that ends by itself, and is over before the last event."""

    def first(segment: dict[str, Any], state: Any) -> None:
        if segment["n"] == 0:
            state.set_timer("1", 1_000)

    def on_timer(timer: Any, state: Any) -> dict[str, Any]:
        if int(timer.name) < 5:
            state.set_timer(str(int(timer.name) + 1), timer.due_ms + 1_000)
        return {"timer": timer.name, "at": timer.due_ms}

    bench = bench_of(first, on_timer, EVENTS)
    bench.settle()
    fired = sorted((row["timer"], row["at"]) for row in bench.written("write"))
    assert fired == [(str(n), n * 1_000) for n in range(1, 6)]


def test_timers_that_are_set_beyond_the_end_are_counted_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def tick(timer: Any, state: Any) -> None:
        state.set_timer(timer.name, timer.due_ms + 10_000)

    bench = bench_of(begin, tick, EVENTS)
    bench.settle()
    assert bench.completed
    messages = [each for each in caplog.messages if "beyond the end of event time" in each]
    counts = [int(each.split("has set ")[1].split()[0]) for each in messages]
    assert sum(counts) == 3


def test_a_deleted_timer_does_not_fire_and_one_that_is_past_fires_at_once() -> None:
    def fn(segment: dict[str, Any], state: Any) -> None:
        state.set_timer("never", segment["time"] + 1)
        state.delete_timer("never")
        if segment["n"] > 30 and state.event_time_ms is not None:
            state.set_timer("past", 5)

    def on_timer(timer: Any, state: Any) -> dict[str, Any]:
        return {"timer": timer.name, "at": state.event_time_ms}

    bench = bench_of(fn, on_timer, EVENTS)
    pass_time(bench, 200)
    bench.settle()
    assert bench.completed
    fired = bench.written("write")
    assert {row["timer"] for row in fired} == {"past"}
    assert len(fired) > 3


def test_what_a_timer_raises_ends_the_job_and_names_the_function() -> None:
    def fails(timer: Any, state: Any) -> None:
        raise ValueError("no luck")

    bench = bench_of(visit, fails, EVENTS)
    bench.settle()
    details = [str(each["detail"]) for each in bench.exceptions]
    assert details
    assert all("state of visit" in each for each in details)
    assert all("onTimer m:on_timer raised ValueError: no luck" in each for each in details)


def test_states_that_nobody_changes_go_after_their_time() -> None:
    held = []

    def fn(segment: dict[str, Any], state: Any) -> dict[str, Any]:
        state.events.append(segment["n"])
        held.append(len(state.events))
        return {"user": state.key, "many": len(state.events)}

    bench = bench_of(fn, gone, EVENTS, stateTtl="1 minute")
    for _ in range(40):
        bench.round()
    before = len(held)
    assert 0 < before < len(EVENTS)
    bench.clock.advance(70)
    bench.settle()
    assert bench.completed
    assert max(held[:before]) > 1
    assert 1 in held[before:]
    assert len(held) == len(EVENTS)


def test_states_that_go_after_the_end_are_gone_from_the_log_as_well() -> None:
    bench = bench_of(visit, lambda timer, state: None, EVENTS, stateTtl="1 minute")
    tasks = [bench.task("visit", number) for number in (0, 1)]

    def held() -> list[StateKeeper]:
        return [task.allocation.keeper for task in tasks if task.allocation.keeper]

    bench.settle()
    assert [each.ended for each in held()] == [True, True]
    assert any(each.operator.query("visit.events") for each in held())
    bench.clock.advance(70)
    bench.settle(["visit"])
    for each in held():
        assert each.operator.query("visit.events") == []
        assert each.durable
        assert each.operator.take_changes() == {}, "what has changed is in the log"


def test_a_timer_takes_a_group_up_again_until_it_is_done_in_the_place_of_a_loop() -> None:
    def begin(segment: dict[str, Any], state: Any) -> None:
        state.events.append(segment["n"])
        state.set_timer("again", 0)

    def again(timer: Any, state: Any) -> dict[str, Any] | None:
        n = state.events[-1]
        if n == 1:
            return session(state, 0)
        state.events.append(n // 2 if n % 2 == 0 else 3 * n + 1)
        state.set_timer("again", 0)
        return None

    numbers = [{"n": n, "user": n, "time": n * 1_000} for n in (6, 7, 27)]
    bench = bench_of(begin, again, numbers)
    bench.settle()
    assert bench.completed
    assert {row["user"]: len(row["events"]) - 1 for row in bench.written("write")} == {
        6: 8, 7: 16, 27: 111,
    }  # fmt: skip
