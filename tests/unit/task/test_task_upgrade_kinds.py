"""Each kind of state over an upgrade: checked before, carried over, and refused with a reason."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct
from tests.support.jobs.bench import GROUP, Bench
from tests.unit.task import test_task_keyed, test_task_processors, test_task_stream_joins

from onyx.peer.work.job_checker import problems
from onyx.settings import Settings, StateSettings

Spec = dict[str, Any]
EAGER = Settings(state=StateSettings(chunk_segments_max=4, snapshot_bytes_min=1))
EVENTS = [{"n": n, "word": "abcdefgh"[n * n % 7], "time": n * 1_000} for n in range(60)]


def emitted(event: Any, window: Any, trigger: Any, state_event: Any, state: Any) -> dict[str, Any]:
    return {"word": state_event["group_key"], "count": state}


def same(segment: dict[str, Any]) -> dict[str, Any]:
    return segment


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "m:emitted": emitted,
    "m:same": same,
    "m:track": test_task_keyed.track,
    "m:other": test_task_keyed.track,
    "m:totals": test_task_processors.Totals,
}


def windowed() -> Spec:
    made = test_task_keyed.spec()
    made["catalog"][1] = {
        "name": "track", "type": "reduce", "groupByKey": "word", "fluxPolicy": "continue",
    }  # fmt: skip
    window = {"id": "w", "task": "track", "type": "global", "aggregation": "count"}
    trigger = {"windowId": "w", "id": "t", "type": "segment", "threshold": [2, "elements"],
               "refinement": "accumulating", "emit": "m:emitted"}  # fmt: skip
    return {**made, "windows": [window], "triggers": [trigger]}


def looked_up() -> Spec:
    """A task that looks up what another one keeps."""
    made = test_task_keyed.spec()
    made["workflow"] += [["read", "look"], ["look", "found"]]
    join = {"state": "track.seen", "key": "word", "as": "seen"}
    made["catalog"] += [
        {"name": "look", "type": "function", "fn": "m:same", "join": join},
        {"name": "found", "type": "output", "plugin": "blackhole"},
    ]
    return made


def changed(spec: Spec, **keys: Any) -> Spec:
    """With other keys of the entry that has the state; None takes one away."""
    made = copy.deepcopy(spec)
    at = next(
        n for n, each in enumerate(made["catalog"]) if each["type"] not in ("input", "output")
    )
    entry = {**made["catalog"][at], **keys}
    made["catalog"][at] = {key: value for key, value in entry.items() if value is not None}
    return made


class Kind(Struct, frozen=True):
    """A kind of state."""

    spec: Callable[[], Spec]
    fits: dict[str, Any]
    """Keys of its task that may change."""
    refused: dict[str, Any]
    """Keys of its task that may not."""
    why: str


KINDS = {
    "windows": Kind(
        windowed, {"batchSize": 3}, {"groupByKey": "n"}, "grouping was word and is n"
    ),
    "state": Kind(
        test_task_keyed.spec,
        {"fn": "m:other"},
        {"state": {**test_task_keyed.STATE, "seen": "value[float]"}},
        "state seen was value[int] and is value[float]",
    ),
    "processor": Kind(
        test_task_processors.spec,
        {"batchSize": 3},
        {"groupByKey": "n"},
        "grouping was word and is n",
    ),
    "join": Kind(
        test_task_stream_joins.spec, {"batchSize": 3}, {"how": "left"}, "how was outer and is left"
    ),
    "join over columns": Kind(
        lambda: test_task_stream_joins.spec(columns=True),
        {"batchSize": 3},
        {"within": {"before": 1, "after": 2}},
        "within was 4000 ms before to 6000 ms after",
    ),
    "latest of a join": Kind(
        lambda: test_task_stream_joins.spec(how="asof", within=None),
        {"batchSize": 3},
        {"left": {"task": "left", "key": "n", "at": "at"}},
        "left.key was [id] and is [n]",
    ),
    "state that another task looks up": Kind(
        looked_up, {"fn": "m:other"}, {"groupByKey": "n"}, "grouping was word and is n"
    ),
}  # fmt: skip


def bench_of(spec: Spec, after: Bench | None = None) -> Bench:
    upgrade = {} if after is None else {"upgrade": {"from": after.id}}
    return Bench({**spec, **upgrade}, FUNCTIONS, settings=EAGER, after=after)


def stopped(spec: Spec, rounds: int) -> Bench:
    bench = bench_of(spec)
    for _ in range(rounds):
        bench.round()
        bench.clock.advance(0.1)
    assert not bench.completed
    return bench


def written(*benches: Bench) -> set[str]:
    return {str(sorted(row.items())) for bench in benches for row in bench.written("write")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_check_has_nothing_against_a_job_that_starts(kind: str) -> None:
    bench = bench_of(KINDS[kind].spec())
    assert problems(bench.job, GROUP, bench) == []


@pytest.mark.short(9)
@pytest.mark.parametrize("rounds", [15, 40])
@pytest.mark.parametrize("change", ["nothing", "what fits"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_goes_on_in_the_new_job(kind: str, change: str, rounds: int) -> None:
    its = KINDS[kind]
    alone = bench_of(its.spec())
    alone.settle()
    old = stopped(its.spec(), rounds)
    new = bench_of(changed(its.spec(), **(its.fits if change == "what fits" else {})), after=old)
    assert problems(new.job, GROUP, new) == []
    new.settle()
    assert new.completed
    assert written(old, new) == written(alone)


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_refused_with_the_reason(kind: str) -> None:
    its = KINDS[kind]
    new = bench_of(changed(its.spec(), **its.refused), after=stopped(its.spec(), 30))
    for _ in range(50):
        new.round()
    assert any(its.why in str(each) for each in new.exceptions), new.exceptions
    assert not new.written("write")


@pytest.mark.parametrize(
    ("kind", "keys", "why"),
    [
        ("state", {"onTimer": "m:gone"}, "task track: m:gone is not registered"),
        ("processor", {"processor": "m:gone"}, "task totals: m:gone is not registered"),
        ("processor", {"processor": "m:same"}, "m:same is no subclass of onyx.processors"),
    ],
)
def test_a_check_names_what_a_worker_lacks_for_state(
    kind: str, keys: dict[str, Any], why: str
) -> None:
    bench = bench_of(changed(KINDS[kind].spec(), **keys))
    (problem,) = problems(bench.job, GROUP, bench)
    assert why in problem


def test_a_check_that_fails_by_a_mistake_of_onyx_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: list[Any] = []
    monkeypatch.setattr("onyx.operators.building.arrow_schema", nothing.index)
    bench = bench_of(KINDS["state"].spec())
    (problem, *_) = problems(bench.job, GROUP, bench)
    assert "a bug in Onyx, not in the job: ValueError" in problem
    assert "please report it" in problem


@pytest.mark.parametrize(("calls", "why"), [(lambda: {}["mine"], "mine"), (same, "missing 1")])
def test_a_check_that_fails_in_the_users_code_blames_that(
    calls: Callable[..., Any], why: str
) -> None:
    spec = {**KINDS["state"].spec(), "lifecycles": [{"task": "all", "calls": "m:calls"}]}
    bench = Bench(spec, {**FUNCTIONS, "m:calls": calls})
    (problem, *_) = problems(bench.job, GROUP, bench)
    assert "bug in Onyx" not in problem
    assert why in problem
