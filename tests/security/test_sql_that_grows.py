"""Texts of SQL in a manifest that make gigabytes of a number, or do not end."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onyx.errors import UserError
from onyx.ids import TaskName
from onyx.model.job import CatalogEntry
from onyx.operators.building import function_of
from onyx.sql import batches as module
from onyx.sql import engine
from onyx.sql.batches import ERROR, Query
from onyx.sql.grammar import MADE_MAX

pytest.importorskip("duckdb")


def run(expression: str, n: int = 3, timeout_s: float = 60.0) -> list[pa.RecordBatch]:
    rows = pa.record_batch({"n": [n, 1], "__row__": [0, 1], "s": ["ab", "c"], "l": [[1], [2]]})
    return Query(f"select {expression} as v from segments", timeout_s)(rows)


@pytest.mark.parametrize(
    "expression",
    [
        "list_sum(range(1000000000))",
        "len(generate_series(0, n))",
        "len(range(0, n, 2))",
        "len(range(-n, 0))",
        "length(repeat(s, n))",
        "len(repeat(l, n))",
        "length(lpad(s, n::int, 'x'))",
        "length(rpad(s, n::int, 'x'))",
        "len(list_resize(l, n))",
        "len(array_resize(l, n, 7))",
        "len(range(timestamp '2000-01-01', timestamp '2030-01-01', interval 1 second))",
    ],
)
def test_what_would_make_much_fails_for_its_row(expression: str) -> None:
    results = run(expression, n=1_000_000_000)

    assert f"more than {MADE_MAX}" in results[-1].column(ERROR)[0].as_py()


@pytest.mark.parametrize(
    "expression",
    [
        "list_transform(l, lambda x: range(1000000))",
        "list_transform(l, lambda x: repeat(s, n))",
        "format('{:>1000000}', s)",
        "format('{:>{}}', s, n)",
        "printf('%*d', n, 1)",
        "printf(s, 1)",
    ],
)
def test_what_has_no_bound_is_refused(expression: str) -> None:
    with pytest.raises(UserError, match=r"width|lambda"):
        run(expression)


@pytest.mark.parametrize(
    ("expression", "made"),
    [
        ("range(n)", [[0, 1, 2], [0]]),
        ("range(3, 0, -1)", [[3, 2, 1]] * 2),
        ("generate_series(1, n)", [[1, 2, 3], [1]]),
        ("range(1, n, NULL)", [None] * 2),
        ("repeat(s, n)", ["ababab", "c"]),
        ("lpad(s, 4, '0')", ["00ab", "000c"]),
        ("list_resize(l, n, 9)", [[1, 9, 9], [2]]),
        ("list_transform(l, lambda x: repeat(s, 2))", [["abab"], ["cc"]]),
        ("format('{:>5}|', s)", ["   ab|", "    c|"]),
        ("len(range(date '2024-01-01', date '2024-03-01', interval 1 month))", [2, 2]),
    ],
)
def test_what_makes_little_is_as_it_was(expression: str, made: list[object]) -> None:
    (result,) = run(expression)

    assert result.column("v").to_pylist() == made


SLOW = (
    "list_sum(list_transform(range(100000), lambda x: list_sum(list_transform(range(100), "
    "lambda y: list_sum(list_transform(range(4), lambda z: sqrt(x + y + z)))))))"
)
"""Takes much longer than the time between two looks, as they are in these tests."""
LOOK_INTERVAL_S = 0.01


def test_rows_that_take_too_long_are_ended_and_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_TIMEOUT_S", 0.0)
    monkeypatch.setattr(engine, "LOOK_INTERVAL_S", LOOK_INTERVAL_S)

    results = run(SLOW, timeout_s=0.0)

    assert "took longer" in results[-1].column(ERROR)[0].as_py()


def test_a_task_says_how_long_a_batch_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_TIMEOUT_S", 0.0)
    monkeypatch.setattr(engine, "LOOK_INTERVAL_S", LOOK_INTERVAL_S)
    text = f"select {SLOW} as v from segments"
    entry = CatalogEntry(name=TaskName("work"), type="function", sql=text, sql_timeout=1)
    select = function_of(entry, lambda name: pytest.fail(f"{name} is asked for"))
    assert select is not None

    results = select(pa.record_batch({"n": [3], "__row__": [0]}))

    assert "took longer than 0.001 s" in results[-1].column(ERROR)[0].as_py()
