"""Joins of two streams on the bench: what a plain loop gives, through crashes and rescaling."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench
from tests.support.stream_joins import Plain, counted

from onyx.keystate.extents import Extent
from onyx.settings import Settings, StateSettings
from onyx.telemetry.catalog import JOIN_EXPIRED, LATE_SEGMENTS, Metric
from onyx.telemetry.interface import TaskMetrics

LEFT = [{"id": n % 7, "at": n * 1_000, "n": n} for n in range(60)]
RIGHT = [{"of": n % 9, "at": n * 1_500, "m": n} for n in range(40)]
PLAIN = Plain("outer", (("id",), ("of",)), 4_000, 6_000, prefixes=("", "r_"))


def spec(
    guarantee: str = "exactly-once",
    columns: bool = False,
    tasks: Sequence[dict[str, Any]] = (),
    edges: Sequence[list[str]] = (),
    **more: Any,
) -> dict[str, Any]:
    repeats = {} if guarantee == "exactly-once" else {"deduplicate": False}
    form = {"batchFormat": "arrow"} if columns else {}
    join = {"how": "outer", "within": {"before": 4_000, "after": 6_000}, **repeats, **more}
    join = {key: value for key, value in join.items() if value is not None}
    inputs = [
        {"name": name, "type": "input", "plugin": "sequence", "batchSize": 5, **form,
         "watermarkKey": "at", "options": {"segments": segments, "partitions": 1}}
        for name, segments in (("left", LEFT), ("right", RIGHT))
    ]  # fmt: skip
    return {
        "guarantee": guarantee,
        "workflow": [["left", "join"], ["right", "join"], ["join", "write"], *edges],
        "catalog": [
            *inputs,
            {"name": "join", "type": "join", "left": {"task": "left", "key": "id", "at": "at"},
             "right": {"task": "right", "key": "of", "at": "at", "prefix": "r_"}, **join},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
            *tasks,
        ],
    }  # fmt: skip


def bench_of(peers: int = 2, left: Any = None, **more: Any) -> Bench:
    settings = more.pop("settings", None)
    made = spec(**more)
    if left is not None:
        made["catalog"][0]["options"]["segments"] = left
    return Bench(made, {}, peers={"join": peers}, settings=settings)


def check(bench: Bench, plain: Plain = PLAIN) -> None:
    """Each result was written, and nothing else; once, if an output writes each segment once."""
    assert bench.completed
    found = counted(bench.written("write"))
    assert set(found) == set(counted(plain.join(LEFT, RIGHT)))


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_a_join_of_streams_gives_what_a_plain_loop_gives(guarantee: str, columns: bool) -> None:
    bench = bench_of(guarantee=guarantee, columns=columns)
    bench.settle()
    check(bench)
    assert counted(bench.written("write")) == counted(PLAIN.join(LEFT, RIGHT))


@pytest.mark.parametrize("rounds", some_of(range(0, 60, 4)))
def test_a_join_is_exact_whenever_a_peer_dies(rounds: int) -> None:
    bench = bench_of(columns=rounds % 8 == 0)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("join", rounds % 2))
    bench.settle()
    check(bench)


@pytest.mark.parametrize("rounds", range(5, 40, 7))
def test_a_join_is_exact_when_peers_come_and_go(rounds: int) -> None:
    bench = bench_of(peers=1)
    for count in (3, 2, 1):
        for _ in range(rounds):
            bench.round()
        bench.rewire(join=count)
    bench.settle()
    check(bench)


@pytest.mark.short(1)
@pytest.mark.parametrize("rounds", some_of(range(0, 60, 9)))
def test_rows_on_disk_are_exact_too(rounds: int, tmp_path: Path) -> None:
    state = StateSettings(memory_extents_max=2, scratch_dir=str(tmp_path))
    bench = bench_of(settings=Settings(state=state), columns=rounds % 2 == 0)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("join"))
    bench.settle()
    check(bench)


def test_nothing_is_sent_or_acked_before_the_state_log_has_both_parents() -> None:
    bench = bench_of()
    bench.start()
    bench.slow = []
    bench.settle()
    assert bench.written("write") == []
    sources = [bench.task(name).runtime.source for name in ("left", "right")]
    assert [each.completed for each in sources if each] == [0, 0]
    bench.finish_slow()
    bench.settle()
    check(bench)


@pytest.mark.parametrize("peers", [1, 2])
def test_keys_of_two_kinds_do_not_meet_on_however_many_peers(peers: int) -> None:
    made = spec(how="inner")
    keys = [1, True, 0, False, "1", 2]
    for at, key in enumerate(("id", "of")):
        made["catalog"][at]["options"]["segments"] = [
            {key: each, "at": number} for number, each in enumerate(keys)
        ]
    bench = Bench(made, {}, peers={"join": peers})
    bench.settle()
    assert bench.completed
    pairs = [(each["id"], each["r_of"]) for each in bench.written("write")]
    assert sorted(map(repr, pairs)) == sorted(repr((each, each)) for each in keys)


def test_the_latest_row_that_is_not_later() -> None:
    bench = bench_of(how="asof", within=None)
    bench.settle()
    check(bench, replace(PLAIN, how="asof", before=None, after=0))


class Counting(TaskMetrics):
    """The counters of a task, all of its peers together."""

    def __init__(self) -> None:
        self.counts: Counter[Metric] = Counter()

    def add(self, metric: Metric, amount: float = 1) -> None:
        self.counts[metric] += int(amount)


@pytest.mark.parametrize("columns", [False, True])
def test_what_nobody_needs_any_more_is_counted_when_it_goes(
    columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = defaultdict[str, Counting](Counting)
    monkeypatch.setattr(Bench, "metrics", lambda bench, job_id, job, task: counting[task])
    bench = bench_of(columns=columns)
    bench.start()
    seen = set()
    for _ in range(100):
        bench.round()
        bench.clock.advance(0.01)
        seen.add(counting["join"].counts[JOIN_EXPIRED])
    assert len(seen - {0, len(LEFT) + len(RIGHT)}) > 1, "it goes while the job runs"
    bench.settle()
    check(bench)
    assert counting["join"].counts[JOIN_EXPIRED] == len(LEFT) + len(RIGHT)
    assert counting["join"].counts[LATE_SEGMENTS] == 0


def test_what_is_late_goes_to_a_child_of_its_own_and_is_counted() -> None:
    behind = {"id": 1, "at": -10_000, "n": 99}
    bench = bench_of(
        left=[*LEFT, behind],
        lateTo="late",
        tasks=[{"name": "late", "type": "output", "plugin": "blackhole"}],
        edges=[["join", "late"]],
    )
    bench.settle()
    check(bench)
    assert bench.written("late") == [behind]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"at": 0, "n": 99}, "key of task join: a segment has no key 'id'"),
        ({"id": 1, "n": 99}, "join join: a segment has no key 'at', which is the at"),
        ({"id": 1, "at": "noon", "n": 99}, "join join: at 'at' holds a str 'noon'"),
        ({"id": [1], "at": 0, "n": 99}, "cannot be keys of a join"),
        ({"id": 1, "at": 2**62, "n": 99}, "at 'at' holds a time farther from 1970"),
    ],
)
@pytest.mark.parametrize("columns", [False, True])
def test_a_segment_that_cannot_be_joined_fails_alone(
    bad: dict[str, Any], message: str, columns: bool
) -> None:
    letters = [{"name": "letters", "type": "output", "plugin": "blackhole"}]
    made = spec(columns=columns, deadLetter="letters", tasks=letters)
    read = made["catalog"][0]
    read |= {"watermarkKey": "n", "deadLetter": "letters"}
    read["options"]["segments"] = [bad] if columns else [*LEFT, bad]
    bench = Bench(made, {}, peers={"join": 2})
    bench.settle()
    assert bench.completed
    (letter,) = bench.written("letters")
    assert message in str(letter)


def test_segments_with_a_uniqueness_key_that_was_seen_are_left_out() -> None:
    twice = [each for row in LEFT for each in (row, row)]
    bench = bench_of(left=twice, guarantee="at-least-once", uniquenessKey="at", deduplicate=True)
    bench.settle()
    assert counted(bench.written("write")) == counted(PLAIN.join(LEFT, RIGHT))


@pytest.mark.parametrize("columns", [False, True])
def test_rows_that_are_of_use_are_told(columns: bool) -> None:
    bench = bench_of(peers=1, columns=columns)
    bench.start()
    found: list[Extent] = []
    while not found:
        bench.round()
        keeper = bench.task("join").allocation.keeper
        found = keeper.operator.query("join")
    for each in found:
        assert each.lower == each.upper
        for side, rows, key in (("left", LEFT, "id"), ("right", RIGHT, "of")):
            mine = [row for row in rows if (row[key], row["at"]) == (each.group, each.lower)]
            assert each.state[side] in ([], mine)
