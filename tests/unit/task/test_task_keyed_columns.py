"""Functions over columns with state on the bench: what a plain loop gives, through crashes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.examples import some_of
from tests.support.jobs.bench import Bench

EVENTS = [{"n": n, "word": "abcdefgh"[n * n % 7], "v": n % 11} for n in range(120)]


def running(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    """The number and the sum of each group so far, in each of its rows."""
    codes, values = state.groups.to_numpy(), batch["v"].to_numpy()
    order = np.argsort(codes, kind="stable")
    sums, seen = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
    before = [state.total.fill_null(0).to_numpy(), state.seen.fill_null(0).to_numpy()]
    totals, counts = before[0].copy(), before[1].copy()
    for row in order.tolist():
        totals[codes[row]] += values[row]
        counts[codes[row]] += 1
        sums[row], seen[row] = totals[codes[row]], counts[codes[row]]
    state.total, state.seen = totals, pa.array(counts)
    return pa.record_batch(
        {"word": batch["word"], "n": batch["n"], "total": sums, "seen": seen,
         "__row__": batch["__row__"]}
    )  # fmt: skip


def expected(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    totals: Counter[str] = Counter()
    for event in events:
        word = event["word"]
        totals[word] += event["v"]
        row = {"word": word, "n": event["n"], "total": totals[word]}
        rows[word].append(row | {"seen": len(rows[word]) + 1})
    return rows


EXPECTED = expected(EVENTS)


def bench_of(
    fn: Any = running, guarantee: str = "exactly-once", peers: int = 2,
    events: list[dict[str, Any]] = EVENTS, columns: bool = True,
    hooks: dict[str, Any] | None = None, **task: Any,
) -> Bench:  # fmt: skip
    repeats = {} if guarantee == "exactly-once" else {"deduplicate": False}
    form = {"batchFormat": "arrow"} if columns else {}
    spec = {
        "guarantee": guarantee,
        "workflow": [["read", "track"], ["track", "write"], ["track", "letters"]],
        "catalog": [
            {"name": "read", "type": "input", "plugin": "sequence", "batchSize": 10, **form,
             "options": {"segments": events, "partitions": 1}},
            {"name": "track", "type": "function", "batchSize": 10, "fn": "m:track",
             "groupByKey": "word", "fluxPolicy": "continue", "batchFormat": "arrow",
             "deadLetter": "letters",
             "state": {"total": "value[int]", "seen": "value[int]"}, **repeats, **task},
            {"name": "write", "type": "output", "plugin": "blackhole", "batchSize": 10},
            {"name": "letters", "type": "output", "plugin": "blackhole"},
        ],
    }  # fmt: skip
    if hooks:
        spec["lifecycles"] = [{"task": "track", "calls": "m:hooks"}]
    return Bench(spec, {"m:track": fn, "m:hooks": lambda: hooks}, peers={"track": peers})


def rows(bench: Bench) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in bench.written("write"):
        assert found[row["word"]].setdefault(row["seen"], row) == row, "never two answers"
    return {word: [each[n] for n in sorted(each)] for word, each in found.items()}


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "dicts"])
@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_a_function_over_columns_gives_what_a_plain_loop_gives(
    guarantee: str, columns: bool
) -> None:
    bench = bench_of(guarantee=guarantee, columns=columns)
    bench.settle()
    assert bench.completed
    assert len(bench.written("write")) == len(EVENTS)
    assert rows(bench) == EXPECTED
    assert bench.written("letters") == []


def test_hooks_get_what_was_made_as_a_record_batch() -> None:
    seen: list[Any] = []
    bench = bench_of(hooks={"after_apply_fn": lambda event, _: seen.append(event["results"])})
    bench.settle()
    batches = [each for each in seen if each]
    assert all(isinstance(each, pa.RecordBatch) for each in batches)
    made = [row for each in batches for row in each.select(["word", "n"]).to_pylist()]
    assert sorted(made, key=lambda row: row["n"]) == [
        {"word": event["word"], "n": event["n"]} for event in EVENTS
    ]


@pytest.mark.parametrize("rounds", some_of(range(0, 90, 5)))
def test_states_over_columns_are_exact_whenever_a_peer_dies(rounds: int) -> None:
    bench = bench_of(stateTtl="1 day")
    for _ in range(rounds):
        bench.round()
    bench.crash(bench.task("track", rounds % 2))
    bench.settle()
    assert bench.completed
    assert rows(bench) == EXPECTED


def test_a_filter_over_columns_sends_what_it_returns() -> None:
    def few(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        made = running(batch, state)
        return made.filter(pc.equal(made["seen"], 3))

    bench = bench_of(few)
    bench.settle()
    assert bench.completed
    thirds = {word: [each[2]] for word, each in EXPECTED.items()}
    assert rows(bench) == thirds


def test_null_takes_a_state_away() -> None:
    def forgets(batch: pa.RecordBatch, state: Any) -> None:
        held = state.total.to_pylist()
        seen.extend(zip(state.keys, held, strict=True))
        state.total = [1 if value is None else None for value in held]
        assert state.total.null_count == sum(value is not None for value in held)

    seen: list[tuple[str, Any]] = []
    bench = bench_of(forgets, peers=1)
    bench.settle()
    assert bench.completed
    for word in EXPECTED:
        mine = [value for key, value in seen if key == word]
        assert mine == [None, 1] * (len(mine) // 2) + [None] * (len(mine) % 2)


def test_a_batch_with_a_failed_row_fails_as_a_whole_and_leaves_nothing() -> None:
    def picky(batch: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        made = running(batch, state)
        wrong = [None if n != 25 else "no" for n in batch["n"].to_pylist()]
        return made.append_column("__error__", pa.array(wrong, pa.string()))

    bench = bench_of(picky, peers=1)
    bench.settle()
    assert bench.completed
    letters = bench.written("letters")
    assert 0 < len(letters) <= 10
    assert all("has failed, and with it the batch" in str(each) for each in letters)
    gone = {each["segment"]["n"] for each in letters}
    assert 25 in gone
    assert rows(bench) == expected([event for event in EVENTS if event["n"] not in gone])


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda state: setattr(state, "total", [1]), "values for"),
        (lambda state: setattr(state, "total", ["x"] * len(state.keys)), "no column of int64"),
        (lambda state: setattr(state, "totals", []), "has no attribute 'totals'"),
    ],
)
def test_what_a_column_of_states_cannot_be_fails_with_its_reason(misuse: Any, message: str) -> None:
    bench = bench_of(lambda batch, state: misuse(state), peers=1)
    bench.settle()
    assert bench.completed
    letters = bench.written("letters")
    assert len(letters) == len(EVENTS)
    assert all(message in str(letter) for letter in letters)


def test_rows_with_a_uniqueness_key_that_was_seen_are_left_out() -> None:
    twice = [each for event in EVENTS for each in (event, event)]
    twice.append({"n": None, "word": "a", "v": 1})
    bench = bench_of(guarantee="at-least-once", events=twice, deduplicate=True, uniquenessKey="n")
    bench.settle()
    assert bench.completed
    assert rows(bench) == EXPECTED
    (letter,) = bench.written("letters")
    assert "uniquenessKey" in str(letter)
