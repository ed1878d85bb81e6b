"""Segments that fail: dead letters, retries, what is refused, and what must not count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.jobs.bench import Bench

import onyx

GUARANTEES = ["at-most-once", "at-least-once", "exactly-once"]
TRACKED = GUARANTEES[1:]
Segment = dict[str, Any]


def job(
    segments: list[Segment],
    work: dict[str, Any] | None = None,
    guarantee: str = "at-least-once",
    **more: Any,
) -> dict[str, Any]:
    """read -> work -> write, with an output `bad` that dead letters can go to."""
    output = {"type": "output", "plugin": "blackhole", "batchSize": 4}
    read = {"options": {"segments": segments, "partitions": 1}}
    catalog = [
        {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 4, **read},
        {"name": "work", "type": "function", "fn": "m:work", "batchSize": 4, **(work or {})},
        {"name": "write", **output, **more.pop("write", {})},
        {"name": "bad", **output},
    ]
    workflow = [["read", "work"], ["work", "write"], *more.pop("edges", [])]
    return {"guarantee": guarantee, "workflow": workflow, "catalog": catalog, **more}


def odd_fails(segment: Segment) -> Segment:
    if segment["n"] % 2:
        raise ValueError(f"odd {segment['n']}")
    return segment


NUMBERS = [{"n": n} for n in range(8)]
DEAD = {"deadLetter": "bad"}
FUNCTIONS = {"m:work": odd_fails, "m:always": lambda *_: True, "m:same": lambda segment: segment}


def run(spec: dict[str, Any], functions: dict[str, Any] | None = None, **more: Any) -> Bench:
    bench = Bench(spec, FUNCTIONS | (functions or {}), **more)
    patiently(bench)
    return bench


def patiently(bench: Bench) -> None:
    """With pauses in which what rests has rested long enough."""
    for _ in range(30):
        bench.settle()
        if bench.completed or bench.exceptions:
            return
        bench.clock.advance(20.0)


def numbers(bench: Bench, task: str = "write") -> list[int]:
    return sorted(segment["n"] for segment in bench.written(task))


def letters(bench: Bench) -> list[tuple[str, str, Any]]:
    return [
        (each["error"]["type"], each["task"], each["segment"].get("n"))
        for each in bench.written("bad")
    ]


# --- dead letters --------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_fails_goes_to_the_dead_letters_and_the_rest_goes_on(guarantee: str) -> None:
    bench = run(job(NUMBERS, DEAD, guarantee))
    assert bench.completed
    assert numbers(bench) == [0, 2, 4, 6]
    assert letters(bench) == [("ValueError", "work", n) for n in (1, 3, 5, 7)]


def test_a_dead_letter_says_what_where_when_and_of_what() -> None:
    bench = run(job([{"n": 1}], DEAD))
    [letter] = bench.written("bad")
    line = letter["error"].pop("line")
    assert line.startswith("test_task_failing.py, line ")
    assert letter == {
        "error": {"type": "ValueError", "message": "odd 1"},
        "job": "job-1",
        "task": "work",
        "id": letter["id"],
        "origin": {"input": "read", "partition": 0, "position": 0},
        "time": "1970-01-01T00:00:00.000+00:00",
        "tries": 1,
        "segment": {"n": 1},
        "types": "",
    }
    assert len(letter["id"]) == 16


def test_without_dead_letters_the_job_ends_and_the_message_names_them() -> None:
    bench = run(job(NUMBERS, edges=[["work", "bad"]]))
    [reported] = bench.exceptions
    assert reported["phase"] == "apply-fn"
    assert "m:work raised ValueError: odd 1" in reported["detail"]
    assert "deadLetter" in reported["detail"]


def test_a_condition_that_takes_the_exception_comes_before_the_dead_letter() -> None:
    takes = {
        "from": ["work"], "to": ["write"], "predicate": "m:three", "thrownException": True,
        "shortCircuit": True, "postTransform": "m:mend",
    }  # fmt: skip
    always = {"from": "work", "to": ["write"], "predicate": "m:always"}
    functions = {
        "m:three": lambda event, old, error, all_new: old["n"] == 3,
        "m:mend": lambda event, old, error: {"n": 300},
    }
    bench = run(job(NUMBERS, DEAD, flowConditions=[takes, always]), functions)
    assert numbers(bench) == [0, 2, 4, 6, 300]
    assert [n for _, _, n in letters(bench)] == [1, 5, 7]


NO_SEGMENTS = [
    (7, "UserFunctionError"),
    ([{"n": 1}, None], "UserFunctionError"),
    ({"tags": {1, 2}}, "SegmentError"),
    ({"n": 2**64}, "SegmentError"),
]


@pytest.mark.parametrize(("result", "kind"), NO_SEGMENTS)
def test_a_result_that_cannot_be_sent_is_a_dead_letter(result: Any, kind: str) -> None:
    bench = run(job([{"n": 1}], DEAD), {"m:work": lambda segment: result})
    assert letters(bench) == [(kind, "work", 1)]
    assert bench.completed


def test_what_a_condition_makes_of_an_exception_and_cannot_be_sent_is_a_dead_letter() -> None:
    takes = {
        "from": "work", "to": ["write"], "predicate": "m:always", "thrownException": True,
        "shortCircuit": True, "postTransform": "m:tell",
    }  # fmt: skip
    tell = {"m:tell": lambda event, old, error: {"n": 1, "error": error}}
    bench = run(job([{"n": 1}], DEAD, flowConditions=[takes]), tell)
    assert letters(bench) == [("SegmentError", "work", 1)]
    assert bench.completed


def test_nothing_else_of_a_segment_that_fails_goes_anywhere() -> None:
    """One of three segments made of it lacks the key by which the child is grouped."""
    functions = {
        "m:work": lambda s: [
            {"n": s["n"], "k": 1},
            {"n": s["n"]} if s["n"] == 2 else {"n": s["n"], "k": 2},
        ]
    }
    bench = run(job(NUMBERS[:4], DEAD, write=GROUPED), functions)
    assert numbers(bench) == [0, 0, 1, 1, 3, 3]
    assert letters(bench) == [("Refusal", "work", 2)]


def test_an_input_with_a_function_has_dead_letters() -> None:
    spec = job(NUMBERS)
    spec["catalog"][0] |= {"fn": "m:odd", **DEAD}
    bench = run(spec, {"m:odd": odd_fails, "m:work": lambda segment: segment})
    assert numbers(bench) == [0, 2, 4, 6]
    assert letters(bench) == [("ValueError", "read", n) for n in (1, 3, 5, 7)]


def test_a_predicate_that_raises_makes_a_dead_letter() -> None:
    def three(event: Any, old: Any, new: Any, all_new: Any) -> bool:
        return bool(1 // (new["n"] - 3)) or True

    condition = {"from": "work", "to": ["write"], "predicate": "m:three"}
    spec = job(NUMBERS, DEAD, flowConditions=[condition])
    bench = run(spec, {"m:three": three, "m:work": lambda segment: segment})
    assert numbers(bench) == [0, 1, 2, 4, 5, 6, 7]
    assert letters(bench) == [("ZeroDivisionError", "work", 3)]


@pytest.mark.parametrize("rounds", range(0, 40, 3))
def test_no_dead_letter_is_lost_whenever_a_peer_dies(rounds: int) -> None:
    bench = Bench(job(NUMBERS, DEAD, "exactly-once"), FUNCTIONS, peers={"work": 2})
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("work", rounds % 2))
    patiently(bench)
    assert bench.completed
    assert {n for _, _, n in letters(bench)} == {1, 3, 5, 7}
    assert set(numbers(bench)) == {0, 2, 4, 6}


# --- groups --------------------------------------------------------------------------------------

GROUPED = {"groupByKey": "k", "minPeers": 1, "fluxPolicy": "continue"}
LACKING = [{"n": 1, "k": "a"}, {"n": 2}, {"n": 3, "k": "b"}, {"n": 4, "k": "nan"}]
PASS = {"m:work": lambda segment: segment}


@pytest.mark.parametrize("peers", [1, 2])
def test_a_segment_without_the_group_key_ends_the_job_however_many_peers_there_are(
    peers: int,
) -> None:
    bench = run(
        job(LACKING[:3], write=GROUPED, edges=[["work", "bad"]]), PASS, peers={"write": peers}
    )
    [reported] = bench.exceptions
    assert reported["phase"] == "route"
    assert "a segment has no key 'k', which is the groupByKey" in reported["detail"]
    assert "task write" in reported["detail"]
    assert reported["detail"].endswith("give task work a deadLetter, which takes such segments")


@pytest.mark.parametrize("peers", [1, 2])
def test_segments_that_have_no_group_are_dead_letters(peers: int) -> None:
    functions = {"m:work": lambda s: {**s, "k": math.nan} if s.get("k") == "nan" else s}
    bench = run(job(LACKING, DEAD, write=GROUPED), functions, peers={"write": peers})
    assert bench.completed
    assert numbers(bench) == [1, 3]
    assert letters(bench) == [("Refusal", "work", 2), ("Refusal", "work", 4)]
    assert bench.written("bad")[1]["segment"]["k"] == "nan"


@pytest.mark.parametrize("peers", [1, 2])
def test_a_group_function_that_raises_refuses_its_segment(peers: int) -> None:
    grouped = {"groupByFn": "m:group", "minPeers": 1, "fluxPolicy": "continue"}
    functions = PASS | {"m:group": lambda segment: 1 // (segment["n"] - 3)}
    bench = run(job(NUMBERS, DEAD, write=grouped), functions, peers={"write": peers})
    assert letters(bench) == [("Refusal", "work", 3)]
    assert "m:group of task write raised ZeroDivisionError" in str(bench.written("bad")[0])


def test_a_job_may_ask_for_a_group_of_those_without_the_key() -> None:
    bench = run(
        job(LACKING[:3], write=GROUPED | {"onMissingKey": "group"}, edges=[["work", "bad"]]), PASS
    )
    assert numbers(bench) == [1, 2, 3]


def test_an_exception_condition_may_take_what_has_no_group() -> None:
    takes = {
        "from": "work", "to": ["bad"], "predicate": "m:always", "thrownException": True,
        "shortCircuit": True, "postTransform": "m:tell",
    }  # fmt: skip
    tell = {"m:tell": lambda event, old, error: {"n": old["n"], "why": type(error).__name__}}
    spec = job(LACKING[:3], write=GROUPED, edges=[["work", "bad"]], flowConditions=[takes])
    bench = run(spec, PASS | tell)
    assert bench.written("bad") == [{"n": 2, "why": "Refusal"}]
    assert numbers(bench) == [1, 3]


# --- retries -------------------------------------------------------------------------------------


def retrying(limit: int | None = None, thrown: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "from": "work", "to": "none", "predicate": "m:always", "thrownException": thrown,
        "shortCircuit": True, "action": "retry", **({"maxRetries": limit} if limit else {}), **more,
    }  # fmt: skip


REST = {"from": "work", "to": ["write"], "predicate": "m:always"}


class Healing:
    """Fails for odd numbers until they have come so often."""

    def __init__(self, tries: int) -> None:
        self.tries = tries
        self.seen: Counter[int] = Counter()
        self.at_s: list[float] = []
        self.bench: Bench | None = None

    def __call__(self, segment: Segment) -> Segment:
        self.seen[segment["n"]] += 1
        if segment["n"] == 1 and self.bench is not None:
            self.at_s.append(self.bench.clock.monotonic_s())
        if segment["n"] % 2 and self.seen[segment["n"]] < self.tries:
            raise ValueError("not yet")
        return segment


@pytest.mark.parametrize("guarantee", TRACKED)
def test_a_segment_is_retried_until_it_works(guarantee: str) -> None:
    heals = Healing(4)
    bench = run(
        job(NUMBERS, DEAD, guarantee, flowConditions=[retrying(5), REST]), {"m:work": heals}
    )
    assert bench.completed
    assert numbers(bench) == list(range(8))
    assert letters(bench) == []


@pytest.mark.parametrize("limit", [1, 3])
def test_a_segment_that_is_retried_too_often_is_a_dead_letter(limit: int) -> None:
    heals = Healing(100)
    bench = run(job(NUMBERS, DEAD, flowConditions=[retrying(limit), REST]), {"m:work": heals})
    assert bench.completed
    assert heals.seen[1] == limit + 1
    assert letters(bench) == [("ValueError", "work", n) for n in (1, 3, 5, 7)]
    assert [each["tries"] for each in bench.written("bad")] == [limit + 1] * 4


def test_without_dead_letters_too_many_retries_end_the_job() -> None:
    spec = job(NUMBERS, edges=[["work", "bad"]], flowConditions=[retrying(2), REST])
    bench = run(spec, {"m:work": Healing(100)})
    [reported] = bench.exceptions
    assert reported["type"] == "ValueError"


def test_too_many_retries_of_a_segment_that_did_not_fail_are_a_failure_of_their_own() -> None:
    conditions = [retrying(2, thrown=False, predicate="m:three"), REST]
    functions = PASS | {"m:three": lambda event, old, new, all_new: new["n"] == 3}
    bench = run(job(NUMBERS, DEAD, flowConditions=conditions), functions)
    assert numbers(bench) == [0, 1, 2, 4, 5, 6, 7]
    assert letters(bench) == [("RetriesExhausted", "work", 3)]
    assert "flowConditions[0]" in bench.written("bad")[0]["error"]["message"]


def test_retries_rest_longer_and_longer() -> None:
    heals = Healing(6)
    bench = Bench(
        job(NUMBERS[:2], DEAD, flowConditions=[retrying(9), REST]), FUNCTIONS | {"m:work": heals}
    )
    heals.bench = bench
    for _ in range(2_000):
        bench.round()
        bench.clock.advance(0.005)
    assert bench.completed
    rests = [later - before for before, later in zip(heals.at_s, heals.at_s[1:], strict=False)]
    for rest, least in zip(rests, [0.1, 0.2, 0.4, 0.8, 1.6], strict=True):
        assert least <= rest < least + 0.2


def test_time_outs_do_not_use_up_retries() -> None:
    heals = Healing(3)
    spec = job(NUMBERS[:2], DEAD, flowConditions=[retrying(2), REST])
    spec["catalog"][0]["pendingTimeout"] = 2_000
    bench = Bench(spec, FUNCTIONS | {"m:work": heals})
    bench.start()
    for _ in range(3):
        bench.settle(["read"])
        bench.task("work").allocation.inbox.take(100)
        bench.clock.advance(5.0)
    patiently(bench)
    assert numbers(bench) == [0, 1]
    assert letters(bench) == []


# --- retries that functions ask for --------------------------------------------------------------


class Asking(Healing):
    """Asks for a retry for odd numbers until they have come so often."""

    def __init__(self, tries: int, ask: Callable[[], Any]) -> None:
        super().__init__(tries)
        self.ask = ask

    def __call__(self, segment: Segment) -> Any:
        try:
            return super().__call__(segment)
        except ValueError:
            return self.ask()


def raises(**more: Any) -> Any:
    raise onyx.Retry("not yet", **more)


ASKS: list[Callable[[], Any]] = [lambda: onyx.FAIL, raises, lambda: onyx.Retry("not yet")]


@pytest.mark.parametrize("guarantee", TRACKED)
@pytest.mark.parametrize("ask", ASKS)
def test_a_function_has_a_segment_retried_until_it_works(
    guarantee: str, ask: Callable[[], Any]
) -> None:
    asks = Asking(4, ask)
    bench = run(job(NUMBERS, DEAD, guarantee), {"m:work": asks})
    assert bench.completed
    assert numbers(bench) == list(range(8))
    assert [asks.seen[n] for n in range(8)] == [1, 4] * 4
    assert letters(bench) == []


@pytest.mark.parametrize("guarantee", TRACKED)
@pytest.mark.parametrize("task", ["read", "write"])
def test_functions_of_inputs_and_outputs_may_ask_too(guarantee: str, task: str) -> None:
    asks = Asking(3, lambda: onyx.FAIL)
    spec = job(NUMBERS, guarantee=guarantee, edges=[["work", "bad"]])
    entries = {entry["name"]: entry for entry in spec["catalog"]}
    entries[task]["fn"], entries["work"]["fn"] = "m:work", "m:same"
    bench = run(spec, {"m:work": asks})
    assert bench.completed
    assert numbers(bench) == list(range(8))


def test_a_segment_that_its_function_fails_too_often_is_a_dead_letter() -> None:
    asks = Asking(100, lambda: raises(max_retries=3))
    bench = run(job(NUMBERS, DEAD), {"m:work": asks})
    assert bench.completed
    assert asks.seen[1] == 4
    assert letters(bench) == [("Retry", "work", n) for n in (1, 3, 5, 7)]
    assert [each["error"]["message"] for each in bench.written("bad")] == ["not yet"] * 4
    assert [each["tries"] for each in bench.written("bad")] == [4] * 4


def test_a_condition_gets_the_retry_only_when_none_is_left() -> None:
    takes = {
        "from": ["work"], "to": ["write"], "predicate": "m:always", "thrownException": True,
        "shortCircuit": True, "postTransform": "m:mend",
    }  # fmt: skip
    functions = {
        "m:work": Asking(100, lambda: raises(max_retries=2)),
        "m:mend": lambda event, old, error: {"n": 10 * old["n"], "why": str(error)},
    }
    bench = run(job(NUMBERS, DEAD, flowConditions=[takes, REST]), functions)
    assert numbers(bench) == [0, 2, 4, 6, 10, 30, 50, 70]
    assert functions["m:work"].seen[1] == 3


def test_the_report_says_that_no_retry_is_left() -> None:
    asks = Asking(100, lambda: raises(max_retries=2))
    bench = run(job(NUMBERS, edges=[["work", "bad"]]), {"m:work": asks})
    [reported] = bench.exceptions
    assert (reported["type"], reported["phase"]) == ("Retry", "apply-fn")
    assert "not yet" in reported["detail"]
    assert "read again as often as it may" in reported["detail"]


def test_what_nobody_reads_again_has_failed_at_once() -> None:
    asks = Asking(2, lambda: onyx.FAIL)
    bench = run(job(NUMBERS, DEAD, "at-most-once"), {"m:work": asks})
    assert bench.completed
    assert numbers(bench) == [0, 2, 4, 6]
    assert letters(bench) == [("Retry", "work", n) for n in (1, 3, 5, 7)]


def test_a_retry_of_a_function_rests_like_that_of_a_condition() -> None:
    asks = Asking(4, lambda: onyx.FAIL)
    bench = Bench(job(NUMBERS[:2], DEAD), FUNCTIONS | {"m:work": asks})
    asks.bench = bench
    for _ in range(400):
        bench.round()
        bench.clock.advance(0.005)
    rests = [later - before for before, later in zip(asks.at_s, asks.at_s[1:], strict=False)]
    for rest, least in zip(rests, [0.1, 0.2, 0.4], strict=True):
        assert least <= rest < least + 0.2


# --- windows -------------------------------------------------------------------------------------

COUNT = {"id": "w", "task": "count", "type": "fixed", "windowKey": "t"} | {
    "range": [100, "elements"]
}


def windowed(kind: str, segments: list[Segment], guarantee: str, **more: Any) -> dict[str, Any]:
    """read -> count -> write, counting and emitting at the end."""
    spec = job(segments, guarantee=guarantee)
    repeats = {} if guarantee == "exactly-once" else {"deduplicate": False}
    spec["catalog"][1] = {
        "name": "count", "type": kind, "fn": "m:work", "batchSize": 4, **DEAD, **repeats,
        **more.pop("count", {}),
    }  # fmt: skip
    spec["workflow"] = [["read", "count"], ["count", "write"]]
    spec["windows"] = [{**COUNT, "aggregation": "count", **more.pop("window", {})}]
    trigger = {"type": "segment", "threshold": [1000, "elements"]}
    spec["triggers"] = [
        {"windowId": "w", "refinement": "accumulating", "emit": "m:emit", **trigger}
    ]
    return {**spec, **more}


def emit(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> Segment:
    return {"state": state}


def states(bench: Bench) -> list[Any]:
    return [each["state"] for each in bench.written("write") if "state" in each]


TIMES = [{"n": n, "t": n} for n in range(8)]
WINDOWED = PASS | {"m:emit": emit}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("kind", ["reduce", "function"])
@pytest.mark.parametrize("bad", [{}, {"t": "soon"}, {"t": None}, {"t": 1e30}])
def test_a_segment_without_a_place_is_a_dead_letter_and_leaves_no_trace(
    kind: str, guarantee: str, bad: Segment
) -> None:
    segments = [*TIMES[:3], {"n": 99, **bad}, *TIMES[3:]]
    bench = run(windowed(kind, segments, guarantee), WINDOWED)
    assert bench.completed
    assert states(bench) == [8]
    assert [n for _, _, n in letters(bench)] == [99]
    if kind == "function":
        passed = [each["n"] for each in bench.written("write") if "n" in each]
        assert sorted(passed) == list(range(8))


REFUSED_BY_WINDOWS = {
    "session key": (
        {"type": "session", "sessionKey": "s", "timeoutGap": [9, "elements"]},
        {"s": 1},
    ),
    "sum": ({"aggregation": ["sum", "v"]}, {"v": 2}),
    "collect": ({"aggregation": ["collect-by-key", "v"]}, {"v": "x"}),
}


@pytest.mark.parametrize("name", REFUSED_BY_WINDOWS)
@pytest.mark.parametrize("wrong", [None, [1]])
def test_what_a_window_cannot_use_is_a_dead_letter(name: str, wrong: Any) -> None:
    window, good = REFUSED_BY_WINDOWS[name]
    key = next(iter(good))
    spec = windowed("reduce", [], "exactly-once", window=window)
    if "session" in name:
        spec["windows"][0].pop("range")
        wrong = object() if wrong else None
    bad = {"n": 99, "t": 5} if wrong is None else {"n": 99, "t": 5, key: wrong}
    if name == "collect" and wrong is None:
        bad = {"n": 99, "t": 5, key: {}}
    functions = WINDOWED | {"m:work": lambda s: bad if s["n"] == 99 else s}
    segments = [{**each, **good} for each in [*TIMES[:3], {"n": 99, "t": 5}, *TIMES[3:]]]
    spec["catalog"][0]["options"]["segments"] = segments
    bench = run(spec, functions)
    assert bench.exceptions == []
    assert [n for _, _, n in letters(bench)] == [99]
    assert len(states(bench)) == 1


def test_a_segment_without_the_uniqueness_key_is_a_dead_letter() -> None:
    unique = {"uniquenessKey": "id", "deduplicate": True}
    segments = [{"id": n, **each} for n, each in enumerate(TIMES)]
    segments[3:3] = [{"n": 99, "t": 4}, {"n": 98, "t": 4, "id": 2}]
    bench = run(windowed("reduce", segments, "at-least-once", count=unique), WINDOWED)
    assert states(bench) == [8]
    assert [n for _, _, n in letters(bench)] == [99]


def test_two_windows_both_count_or_neither() -> None:
    """The first window can use what the second one refuses."""
    spec = windowed("reduce", [*TIMES, {"n": 99, "t": 3}], "exactly-once")
    spec["windows"].append({**COUNT, "id": "sums", "aggregation": ["sum", "n2"]})
    functions = WINDOWED | {"m:work": lambda s: s if s["n"] == 99 else {**s, "n2": 1}}
    bench = run(spec, functions)
    assert states(bench) == [8]
    assert [n for _, _, n in letters(bench)] == [99]


@pytest.mark.parametrize("kind", ["reduce", "function"])
@pytest.mark.parametrize("guarantee", TRACKED)
def test_what_is_retried_is_counted_once_and_not_forgotten(kind: str, guarantee: str) -> None:
    heals = Healing(3)
    conditions = [{**retrying(5), "from": "count"}, {**REST, "from": "count"}]
    spec = windowed(kind, TIMES, guarantee, flowConditions=conditions)
    bench = run(spec, WINDOWED | {"m:work": heals})
    assert bench.completed
    assert states(bench) == [8]


@pytest.mark.parametrize("kind", ["reduce", "function"])
@pytest.mark.parametrize("guarantee", TRACKED)
def test_what_a_function_fails_is_counted_once(kind: str, guarantee: str) -> None:
    asks = Asking(3, lambda: onyx.FAIL)
    bench = run(windowed(kind, TIMES, guarantee), WINDOWED | {"m:work": asks})
    assert bench.completed
    assert states(bench) == [8]


@pytest.mark.parametrize("rounds", range(0, 60, 4))
@pytest.mark.parametrize("kind", ["reduce", "function"])
def test_windows_and_dead_letters_are_exact_whenever_a_peer_dies(kind: str, rounds: int) -> None:
    segments = [*TIMES[:3], {"n": 99}, *TIMES[3:], {"n": 98, "t": "soon"}]
    bench = Bench(windowed(kind, segments, "exactly-once"), FUNCTIONS | WINDOWED)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("count"))
    patiently(bench)
    assert bench.completed
    assert set(states(bench)) == {8}
    assert {n for _, _, n in letters(bench)} == {98, 99}
