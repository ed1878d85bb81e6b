"""Functions with state on the bench: what a plain loop gives, through crashes and rescaling."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from tests.support.examples import some_of
from tests.support.jobs.bench import JOB, Bench

import onyx
from onyx.codec.questions import decode_extents, encode_selection
from onyx.errors import UserError
from onyx.ids import GroupId
from onyx.keystate.selection import Selection
from onyx.program.phases import Phase
from onyx.settings import Settings, StateSettings
from onyx.task.task import StateQuestion
from onyx.transport.state_queries import StateAnswer, StateQuery

EVENTS = [{"n": n, "word": "abcdefgh"[n * n % 7], "time": n * 1_000} for n in range(60)]
STATE = {"seen": "value[int]", "last": "map[str, int]", "events": "list[int]"}


def track(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    state.seen = (state.seen or 0) + 1
    state.last[f"of {segment['n'] % 3}"] = segment["n"]
    state.events.append(segment["n"])
    if len(state.events) > 4:
        del state.events[:2]
    return {
        "word": state.key,
        "seen": state.seen,
        "last": dict(state.last),
        "events": list(state.events),
    }


def expected() -> dict[str, list[dict[str, Any]]]:
    """By a plain loop."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    last: dict[str, dict[str, int]] = defaultdict(dict)
    events: dict[str, list[int]] = defaultdict(list)
    for segment in EVENTS:
        word, n = segment["word"], segment["n"]
        last[word][f"of {n % 3}"] = n
        events[word].append(n)
        if len(events[word]) > 4:
            del events[word][:2]
        row = {"word": word, "seen": len(rows[word]) + 1}
        rows[word].append(row | {"last": dict(last[word]), "events": list(events[word])})
    return rows


EXPECTED = expected()


def spec(guarantee: str = "exactly-once", **more: Any) -> dict[str, Any]:
    repeats = {} if guarantee == "exactly-once" else {"deduplicate": False}
    read = {"options": {"segments": EVENTS, "partitions": 1}, **more.pop("read", {})}
    task = {"fn": "m:track", "groupByKey": "word", "fluxPolicy": "continue", "state": STATE}
    return {
        "guarantee": guarantee,
        "workflow": [["read", "track"], ["track", "write"], *more.pop("edges", [])],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 5,
             "watermarkKey": "time", **read},
            {"name": "track", "type": "function", "batchSize": 5, **task, **repeats,
             **more.pop("task", {})},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
            *more.pop("tasks", []),
        ],
        **more,
    }  # fmt: skip


def bench_of(fn: Callable[..., Any] = track, peers: int = 2, **more: Any) -> Bench:
    functions = {"m:track": fn, **more.pop("functions", {})}
    settings = more.pop("settings", None)
    return Bench(spec(**more), functions, peers={"track": peers}, settings=settings)


def rows(bench: Bench, task: str = "write") -> dict[str, list[dict[str, Any]]]:
    """What was written for each word, each row once, in the order of `seen`."""
    found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in bench.written(task):
        assert found[row["word"]].setdefault(row["seen"], row) == row, "never two answers"
    return {word: [each[n] for n in sorted(each)] for word, each in found.items()}


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_a_function_with_state_gives_what_a_plain_loop_gives(guarantee: str) -> None:
    bench = bench_of(guarantee=guarantee)
    bench.settle()
    assert bench.completed
    assert len(bench.written("write")) == len(EVENTS)
    assert rows(bench) == EXPECTED


@pytest.mark.parametrize("rounds", some_of(range(0, 90, 4)))
def test_states_are_exact_whenever_a_peer_dies(rounds: int) -> None:
    bench = bench_of()
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("track", rounds % 2))
    bench.settle()
    assert bench.completed
    assert rows(bench) == EXPECTED


@pytest.mark.parametrize("rounds", range(10, 80, 7))
def test_states_are_exact_when_peers_come_and_go(rounds: int) -> None:
    bench = bench_of(peers=1)
    for count in (3, 2, 1):
        for _ in range(rounds):
            bench.round()
        bench.rewire(track=count)
    bench.settle()
    assert bench.completed
    assert rows(bench) == EXPECTED


@pytest.mark.parametrize("rounds", some_of(range(0, 90, 9)))
def test_states_on_disk_are_exact_too(rounds: int, tmp_path: Path) -> None:
    state = StateSettings(memory_extents_max=2, scratch_dir=str(tmp_path))
    bench = bench_of(settings=Settings(state=state))
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("track"))
    bench.settle()
    assert bench.completed
    assert rows(bench) == EXPECTED


def test_nothing_is_sent_or_acked_before_the_state_log_has_it() -> None:
    bench = bench_of()
    bench.start()
    bench.slow = []
    bench.settle()
    assert bench.written("write") == []
    source = bench.task("read").runtime.source
    assert source is not None
    assert source.completed == 0
    bench.finish_slow()
    bench.settle()
    assert source.completed == len(EVENTS)
    assert rows(bench) == EXPECTED


def test_a_call_that_raises_leaves_nothing_and_its_segment_is_a_dead_letter() -> None:
    def picky(segment: dict[str, Any], state: Any) -> Any:
        found = track(segment, state)
        state.set_timer("t", 10**12)
        if segment["n"] % 10 == 9:
            raise ValueError("nine")
        if segment["n"] % 10 == 8:
            return {"word": object()}
        return found

    kept = [event for event in EVENTS if event["n"] % 10 < 8]
    bench = bench_of(
        picky,
        task={"deadLetter": "letters", "onTimer": "m:timer"},
        functions={"m:timer": lambda timer, state: None},
        tasks=[{"name": "letters", "type": "output", "plugin": "blackhole"}],
    )
    bench.settle()
    assert bench.completed
    assert len(bench.written("letters")) == len(EVENTS) - len(kept)
    seen = Counter(event["word"] for event in kept)
    assert {word: each[-1]["seen"] for word, each in rows(bench).items()} == seen
    assert {n for each in rows(bench).values() for row in each for n in row["events"]} == {
        event["n"] for event in kept
    }


@pytest.mark.parametrize("rounds", range(0, 80, 16))
def test_a_segment_that_asks_for_a_retry_counts_once(rounds: int) -> None:
    asked: Counter[int] = Counter()

    def impatient(segment: dict[str, Any], state: Any) -> Any:
        state.seen = (state.seen or 0) + 1
        asked[segment["n"]] += 1
        if segment["n"] % 4 == 0 and asked[segment["n"]] < 3:
            raise onyx.Retry("later")
        return {"word": state.key, "seen": state.seen}

    bench = bench_of(impatient)
    for _ in range(rounds):
        bench.round()
    if rounds:
        bench.crash(bench.task("track"))
    for _ in range(20):
        bench.settle()
        bench.clock.advance(1)
    assert bench.completed
    seen = Counter(event["word"] for event in EVENTS)
    assert {word: each[-1]["seen"] for word, each in rows(bench).items()} == seen


def test_segments_with_a_uniqueness_key_that_was_seen_are_left_out() -> None:
    twice = [each for event in EVENTS for each in (event, event)]
    bench = Bench(
        spec(
            "at-least-once",
            task={"deduplicate": True, "uniquenessKey": "n"},
            read={"options": {"segments": twice, "partitions": 1}},
        ),
        {"m:track": track},
    )
    bench.settle()
    assert bench.completed
    assert rows(bench) == EXPECTED


def test_a_segment_without_its_uniqueness_key_fails_alone() -> None:
    segments = [*EVENTS, {"word": "a", "time": 0}]
    bench = Bench(
        spec(
            "at-least-once",
            task={"deduplicate": True, "uniquenessKey": "n", "deadLetter": "letters"},
            read={"options": {"segments": segments, "partitions": 1}},
            tasks=[{"name": "letters", "type": "output", "plugin": "blackhole"}],
        ),
        {"m:track": track},
    )
    bench.settle()
    assert bench.completed
    (letter,) = bench.written("letters")
    assert "uniquenessKey" in str(letter)
    assert rows(bench) == EXPECTED


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda state: setattr(state, "seen", "one"), "state seen holds int, not"),
        (lambda state: setattr(state, "sen", 1), "has no attribute 'sen'"),
        (lambda state: state.last.update({1: 1}), "state last has keys of type str"),
        (lambda state: state.last.update({"\ud800": 1}), "state last has keys of type str: "),
        (lambda state: state.events.append(None), "state events holds int, not"),
        (lambda state: setattr(state, "events", 3), "a state that is a list is set to"),
        (lambda state: setattr(state, "last", [3]), "a state that is a map is set to"),
        (lambda state: state.set_timer("t", 1), "the task has no onTimer"),
        (lambda state: setattr(state, "seen", 2**70), "takes more than 64 bits"),
    ],
)
def test_what_a_state_cannot_hold_fails_with_its_reason(
    misuse: Callable[[Any], None], message: str
) -> None:
    bench = bench_of(
        lambda segment, state: misuse(state),
        task={"deadLetter": "letters"},
        tasks=[{"name": "letters", "type": "output", "plugin": "blackhole"}],
    )
    bench.settle()
    assert bench.completed
    letters = bench.written("letters")
    assert len(letters) == len(EVENTS)
    assert all(message in str(letter) for letter in letters)


def test_what_nothing_takes_care_of_ends_the_job_with_the_line_in_the_function() -> None:
    def fails(segment: dict[str, Any], state: Any) -> None:
        raise ValueError("no luck")

    bench = bench_of(fails, peers=1)
    bench.settle()
    (report,) = {str(each["detail"]) for each in bench.exceptions}
    assert "m:track raised ValueError: no luck (test_task_keyed.py, line" in report


EAGER = Settings(state=StateSettings(chunk_segments_max=4, snapshot_bytes_min=1))


@pytest.mark.parametrize("rounds", range(0, 160, 20))
def test_states_go_on_in_the_job_that_upgrades_another_one(rounds: int) -> None:
    old = bench_of(settings=EAGER)
    for _ in range(rounds):
        old.round()
        old.clock.advance(0.1)
    new = Bench(
        spec(upgrade={"from": "job-1"}), {"m:track": track}, {"track": 3}, settings=EAGER, after=old
    )
    new.settle()
    assert new.completed
    found = rows(new)
    for word, before in rows(old).items():
        assert before == EXPECTED[word][: len(before)]
    assert {word: each[-1] for word, each in found.items()} == {
        word: each[-1] for word, each in EXPECTED.items()
    }


def test_a_state_is_asked_between_two_steps() -> None:
    bench = bench_of(peers=1)
    for _ in range(40):
        bench.round()
    held = bench.task("track").allocation.keeper.operator
    found = {each.group: each.state for each in held.query("track.seen")}
    assert found
    assert all(count <= len(EXPECTED[word]) for word, count in found.items())
    (one,) = held.query("track.last", Selection(key=next(iter(found))))
    assert one.state == EXPECTED[one.group][found[one.group] - 1]["last"]
    assert held.query("track.events", Selection(key="nobody")) == []
    assert [each.group for each in held.query("track.events", extents_max=1)] == [min(found)]
    with pytest.raises(UserError, match=r"has no state 'track.none', but events, last, seen"):
        held.query("track.none")


def test_flow_conditions_route_what_a_function_with_state_returns_and_raises() -> None:
    def picky(segment: dict[str, Any], state: Any) -> Any:
        found = track(segment, state)
        if segment["n"] % 10 == 9:
            raise ValueError("nine")
        return found

    conditions = [
        {"from": "track", "to": ["failed"], "shortCircuit": True, "thrownException": True,
         "predicate": "m:always", "postTransform": "m:described"},
        {"from": "track", "to": ["write"], "predicate": ["<", "seen", 3]},
        {"from": "track", "to": ["late"], "predicate": [">=", "seen", 3]},
    ]  # fmt: skip
    outputs = [
        {"name": each, "type": "output", "plugin": "blackhole"} for each in ("failed", "late")
    ]
    bench = bench_of(
        picky,
        edges=[["track", "failed"], ["track", "late"]],
        tasks=outputs,
        flowConditions=conditions,
        functions={
            "m:always": lambda event, old, new, all_new: True,
            "m:described": lambda event, segment, error: {"n": segment["n"], "why": str(error)},
        },
    )
    bench.settle()
    assert bench.completed
    failed = bench.written("failed")
    assert sorted(row["n"] for row in failed) == list(range(9, 60, 10))
    assert {row["why"] for row in failed} == {"nine"}
    assert {row["seen"] for row in bench.written("write")} == {1, 2}
    assert min(row["seen"] for row in bench.written("late")) == 3
    passed = len(bench.written("write")) + len(bench.written("late"))
    assert passed == len(EVENTS) - len(failed)


@pytest.mark.parametrize("failing", [7, 22, 43])
def test_a_task_that_is_restarted_goes_on_with_what_was_durable(failing: int) -> None:
    """The calls before the one that failed, in the same batch, are as if they had not been."""
    broken = [True]

    def sometimes(segment: dict[str, Any], state: Any) -> Any:
        found = track(segment, state)
        if broken[0] and segment["n"] == failing:
            raise ValueError("not now")
        return found

    hooks = {"handle_exception": lambda *_: "restart"}
    bench = bench_of(
        sometimes,
        peers=1,
        lifecycles=[{"task": "track", "calls": "m:calls"}],
        functions={"m:calls": lambda: hooks},
    )
    bench.settle()
    assert not bench.completed
    while not bench.restarted:
        bench.clock.advance(0.5)
        bench.round()
    broken[0] = False
    bench.crash(bench.task("track"))
    bench.settle()
    assert bench.completed
    assert rows(bench) == EXPECTED


def test_a_durable_answer_waits_for_a_batch_whose_changes_are_not_accounted_for_yet() -> None:
    bench = bench_of(peers=1)
    bench.start()
    task = bench.task("track")
    while task.phase is not Phase.ROUTE:
        bench.round()
    asked = StateQuery(
        "tenancy", GroupId("g"), task.peer, JOB, task.allocation.wiring.version, "track.seen",
        encode_selection(Selection()), 100, durable=True,
    )  # fmt: skip
    answer: Future[StateAnswer] = Future()
    task.post(StateQuestion(asked, answer))
    bench.step(task)
    assert not answer.done()
    bench.settle()
    assert decode_extents(answer.result(0).data)
