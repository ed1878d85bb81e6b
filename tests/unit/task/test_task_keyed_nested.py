"""States whose types nest, on the bench: what a plain loop gives, in dicts and in columns, and what
questions find inside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.jobs.bench import JOB, Bench

from onyx.codec.questions import decode_extents, encode_selection
from onyx.ids import GroupId
from onyx.keystate.selection import Inside, Selection
from onyx.settings import Settings, StateSettings
from onyx.task.task import StateQuestion
from onyx.transport.state_queries import StateAnswer, StateQuery

EVENTS = [{"n": n, "word": "abc"[n * n % 3], "page": f"p{n % 4}"} for n in range(48)]
STATE = {
    "visits": "map[str, list[int]]",
    "last": "list[struct[page: str, at: float, tags: list[str]]]",
    "by": "value[map[int, map[str, int]]]",
}
COLUMNS = {"visits": "value[map[str, list[int]]]", "last": "value[struct[page: str, n: int]]"}


def track(segment: dict[str, Any], state: Any) -> dict[str, Any]:
    n, page = segment["n"], segment["page"]
    state.visits[page] = [*state.visits.get(page, []), n]
    state.last.append({"page": page, "at": n, "tags": ["even"] * (n % 2 == 0)})
    del state.last[:-2]
    by = state.by or {}
    by.setdefault(n % 2, {})[page] = n
    state.by = by
    # What a function gets is its own: this changes no state.
    state.visits[page].append(-1)
    state.last[0]["tags"].append("lost")
    return {"n": n, "word": state.key, "visits": dict(state.visits), "last": list(state.last),
            "by": {str(key): each for key, each in state.by.items()}}  # fmt: skip


def track_columns(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    visits = [each or {} for each in state.visits.to_pylist(maps_as_pydicts="strict")]
    last = state.last.to_pylist()
    found = []
    for row, group in zip(batch.to_pylist(), state.groups.to_pylist(), strict=True):
        visits[group][row["page"]] = [*visits[group].get(row["page"], []), row["n"]]
        last[group] = {"page": row["page"], "n": row["n"]}
        found.append(str(visits[group]))
    state.visits, state.last = visits, last
    return batch.append_column("visits", pa.array(found))


def expected() -> dict[int, dict[str, Any]]:
    """By a plain loop."""
    rows: dict[int, dict[str, Any]] = {}
    visits: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    last: dict[str, list[dict[str, Any]]] = defaultdict(list)
    by: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
    for event in EVENTS:
        n, word, page = event["n"], event["word"], event["page"]
        visits[word][page].append(n)
        last[word].append({"page": page, "at": float(n), "tags": ["even"] * (n % 2 == 0)})
        by[word].setdefault(str(n % 2), {})[page] = n
        rows[n] = {
            "n": n, "word": word, "visits": {key: [*each] for key, each in visits[word].items()},
            "last": last[word][-2:], "by": {key: dict(each) for key, each in by[word].items()},
        }  # fmt: skip
    return rows


EXPECTED = expected()


def spec(columns: bool, **more: Any) -> dict[str, Any]:
    form = {"batchFormat": "arrow"} if columns else {}
    return {
        "guarantee": "exactly-once",
        "workflow": [["read", "track"], ["track", "write"], ["track", "letters"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 5, **form,
             "options": {"segments": EVENTS, "partitions": 1}},
            {"name": "track", "type": "function", "batchSize": 5, "fn": "m:track",
             "groupByKey": "word", "fluxPolicy": "continue", "deadLetter": "letters",
             "state": COLUMNS if columns else STATE, **form},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 5},
            {"name": "letters", "type": "output", "plugin": "blackhole"},
        ],
        **more,
    }  # fmt: skip


def bench_of(
    columns: bool = False,
    settings: Settings | None = None,
    after: Bench | None = None,
    fn: Callable[..., Any] | None = None,
) -> Bench:
    fn = fn or (track_columns if columns else track)
    more = {} if after is None else {"upgrade": {"from": "job-1"}}
    return Bench(spec(columns, **more), {"m:track": fn}, {"track": 2}, 0, settings, True, after)


def check(*benches: Bench, columns: bool = False) -> None:
    """Each segment has the answer of the plain loop, whichever job gave it."""
    found = {row["n"]: row for bench in benches for row in bench.written("write")}
    assert [row for bench in benches for row in bench.written("letters")] == []
    if columns:
        assert {n: row["visits"] for n, row in found.items()} == {
            n: str(row["visits"]) for n, row in EXPECTED.items()
        }
    else:
        assert found == EXPECTED


BOTH = pytest.mark.parametrize("columns", [False, True], ids=["dicts", "columns"])


@BOTH
@pytest.mark.parametrize("rounds", [0, 25, 50])
@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
def test_states_that_nest_are_exact_when_peers_die_come_and_go(
    columns: bool, rounds: int, on_disk: bool, tmp_path: Path
) -> None:
    state = StateSettings(memory_extents_max=2, scratch_dir=str(tmp_path))
    bench = bench_of(columns, Settings(state=state) if on_disk else None)
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("track"))
    for count in (3, 1):
        for _ in range(8):
            bench.round()
        bench.rewire(track=count)
    bench.settle()
    assert bench.completed
    check(bench, columns=columns)


@BOTH
def test_states_that_nest_go_on_in_an_upgrade(columns: bool) -> None:
    eager = Settings(state=StateSettings(chunk_segments_max=4, snapshot_bytes_min=1))
    old = bench_of(columns, eager)
    for _ in range(60):
        old.round()
        old.clock.advance(0.1)
    new = bench_of(columns, eager, old)
    new.settle()
    assert new.completed
    check(old, new, columns=columns)


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda state: state.visits.update(a=["x"]), "visits, in a list, holds int, not"),
        (lambda state: state.visits.update(a=1), "visits holds a list, not"),
        (lambda state: state.last.append({"at": "x"}), "last, in at, holds float, not"),
        (lambda state: state.last.append({"att": 1}), "a struct with page, at, tags, not with"),
        (lambda state: state.last.append([1]), "last holds a struct, not"),
        (lambda state: setattr(state, "by", {"x": {}}), "state by has keys of type int, not"),
        (lambda state: setattr(state, "by", {1: {"x": 2**70}}), "takes more than 64 bits"),
        (lambda state: setattr(state, "by", [1]), "by holds a map, not"),
    ],
)
def test_what_does_not_fit_inside_fails_with_its_place(
    misuse: Callable[[Any], None], message: str
) -> None:
    bench = bench_of(fn=lambda segment, state: misuse(state))
    bench.settle()
    assert bench.completed
    letters = bench.written("letters")
    assert len(letters) == len(EVENTS)
    assert message in str(letters[0])


def test_a_null_in_a_list_that_a_column_brings_fails_the_batch() -> None:
    def nulls(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        state.visits = [{"p": [None]}] * len(state.keys)
        return batch

    bench = bench_of(columns=True, fn=nulls)
    bench.settle()
    assert "visits, in a list in a map, holds int, not" in str(bench.written("letters")[0])


def inside(bench: Bench, state: str, part: Inside) -> Any:
    """What a question about one group gets."""
    task = bench.task("track")
    asked = StateQuery(
        "tenancy", GroupId("g"), task.peer, JOB, task.allocation.wiring.version, f"track.{state}",
        encode_selection(Selection(key="a", inside=part)), 100,
    )  # fmt: skip
    answer: Future[StateAnswer] = Future()
    task.post(StateQuestion(asked, answer))
    bench.step(task)
    (extent,) = decode_extents(answer.result(0).data)
    return extent.state


@pytest.mark.parametrize(
    ("state", "part", "found"),
    [
        ("visits", Inside(("p1",)), [9, 21, 33, 45]),
        ("visits", Inside(("p1", -1)), 45),
        ("visits", Inside(("p1",), 1, 3), [21, 33]),
        ("visits", Inside(("p1",), items_max=1), [9]),
        ("visits", Inside(first="p1", end="p3"), {"p1": [9, 21, 33, 45], "p2": [6, 18, 30, 42]}),
        ("visits", Inside(first="p2", items_max=1), {"p2": [6, 18, 30, 42]}),
        ("visits", Inside(("nowhere", 0)), None),
        ("visits", Inside(("p1", "no index")), None),
        ("last", Inside((1, "page")), "p1"),
        ("by", Inside((1, "p1")), 45),
        ("by", Inside(end=1), {0: {"p0": 36, "p2": 42}}),
        ("by", Inside((1, "p1"), first=0), None),
    ],
)
def test_a_question_takes_a_part_out_of_a_state(state: str, part: Inside, found: Any) -> None:
    bench = Bench(spec(False), {"m:track": track}, {"track": 1})
    while len(bench.written("write")) < len(EVENTS):
        bench.round()
    assert inside(bench, state, part) == found
