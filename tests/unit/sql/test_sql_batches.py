"""Texts of SQL over batches: which rows they make, of which rows, with which types."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyx.errors import UserFunctionError
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.flow.leaves import apply_to_columns
from onyx.sql.batches import Expression, Query

TRIPS = {"id": [1, 2, 3, 4], "km": [5.0, 30.0, None, 80.0], "hours": [1.0, 0.5, 1.0, 2.0]}
Leaf = tuple[int, dict[str, Any]]


def applied(
    text: str, columns: dict[str, Any] | pa.RecordBatch
) -> tuple[list[Leaf], dict[int, str]]:
    """What a text makes: (row that it is made of, segment); and why rows have failed."""
    given = columns if isinstance(columns, pa.RecordBatch) else pa.record_batch(columns)
    leaves = apply_to_columns(Query(text), (), Columns.of(given))
    segments = to_dicts(leaves.segments)
    parents = range(len(segments)) if leaves.parents is None else leaves.parents.tolist()
    return list(zip(parents, segments, strict=True)), {
        row: str(error) for row, error in leaves.failures
    }


def rows(text: str, columns: dict[str, Any] | pa.RecordBatch = TRIPS) -> list[Leaf]:
    made, failed = applied(text, columns)
    assert failed == {}
    return made


@pytest.mark.short(4)
@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("select id from segments", [(n, {"id": n + 1}) for n in range(4)]),
        (
            "select id as number from segments where km > 10",
            [(1, {"number": 2}), (3, {"number": 4})],
        ),
        (
            "select id, km / hours as speed from segments where km > 10",
            [(1, {"id": 2, "speed": 60.0}), (3, {"id": 4, "speed": 40.0})],
        ),
        ("select * exclude (km, hours) from segments where km is null", [(2, {"id": 3})]),
        (
            "select * exclude (hours) replace (km * 2 as km) from segments where id = 1",
            [(0, {"id": 1, "km": 10.0})],
        ),
        (
            "select * rename (km as far), id = 1 as first from segments where id = 1",
            [(0, {"id": 1, "far": 5.0, "hours": 1.0, "first": True})],
        ),
        ("select ID, Km from segments where ID = 2", [(1, {"id": 2, "km": 30.0})]),
        ("select t.id from segments t where t.id = 2", [(1, {"id": 2})]),
        ("from segments where id > 3", [(3, {"id": 4, "km": 80.0, "hours": 2.0})]),
        ("select id * 2 as d, d + 1 as e from segments where d = 4", [(1, {"d": 4, "e": 5})]),
        ("select 'a' as a from segments where id < 3", [(0, {"a": "a"}), (1, {"a": "a"})]),
        ("select id from segments where false", []),
    ],
)
def test_rows_that_are_made_know_of_which_rows(text: str, made: list[Leaf]) -> None:
    assert rows(text) == made


def test_a_list_becomes_rows_of_its_row() -> None:
    columns = {"id": [1, 2, 3], "stops": [["a", "b"], [], ["c"]]}
    assert rows("select id, unnest(stops) as stop from segments", columns) == [
        (0, {"id": 1, "stop": "a"}),
        (0, {"id": 1, "stop": "b"}),
        (2, {"id": 3, "stop": "c"}),
    ]


def test_columns_that_go_on_keep_their_types_also_those_that_duckdb_lacks() -> None:
    columns = {
        "time": pa.array([1, 2], pa.timestamp("ns", "UTC")),
        "kind": pa.array(["a", "b"]).dictionary_encode(),
        "half": pa.array([0.5, 1.5], pa.float16()),
        "money": pa.array([Decimal("1.10"), None], pa.decimal128(10, 2)),
        "of": pa.array([{"x": 1}, {"x": 2}]),
        "n": pa.array([1, 2], pa.uint8()),
    }
    batch = pa.record_batch(columns)
    (made,) = Query("select *, n > 1 as big from segments")(
        batch.append_column("__row__", pa.array([0, 1]))
    )
    assert made.schema.names == ["__row__", *columns, "big"]
    assert made.select([*columns]).equals(batch)


@pytest.mark.short(8)
@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("seen - interval 1 hour", datetime(2026, 1, 2, 2, tzinfo=UTC)),
        ("seen - timestamptz '2026-01-01 00:00:00+00'", timedelta(hours=27)),
        ("date_trunc('day', seen)", datetime(2026, 1, 2, tzinfo=UTC)),
        ("hour(seen)", 3),
        ("strftime(seen, '%Y-%m-%d %H')", "2026-01-02 03"),
        ("seen::date", date(2026, 1, 2)),
        ("interval 90 minutes", timedelta(minutes=90)),
        ("10 / 4", 2.5),
        ("10 // 4", 2),
        ("cast(1.5 as decimal(5, 2))", Decimal("1.50")),
        ("sum_of['x']", 7),
        ("sum_of.x", 7),
        ("list_transform([1, 2], lambda x: x + n)", [4, 5]),
        ("[1, 2][1]", 1),
        ("{'a': n}", {"a": 3}),
        ("map {'a': n}", [{"key": "a", "value": 3}]),
        ("upper(name) || '!'", "ADA!"),
        ("regexp_extract(name, '(.)d', 1)", "a"),
        ("case when n > 2 then 'many' else 'few' end", "many"),
        ("coalesce(null, n)", 3),
        ("try_cast(name as integer)", None),
        ("json_extract_string('{\"a\": \"b\"}', '$.a')", "b"),
        ("n::utinyint", 3),
        ("md5(name)", "8c8d357b5e872bbacd45197626bd5759"),
    ],
)
def test_values_that_are_computed_are_those_of_segments(expression: str, value: Any) -> None:
    columns = {
        "seen": [datetime(2026, 1, 2, 3, tzinfo=UTC)],
        "n": [3],
        "name": ["ada"],
        "sum_of": [{"x": 7}],
    }
    assert rows(f"select {expression} as x from segments", columns) == [(0, {"x": value})]


FAR, US = timedelta(days=400 * 365, microseconds=7), timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("until - since", [timedelta(days=2917190), timedelta(microseconds=-1), None]),
        ("d + d", [2 * FAR, -2 * FAR, None]),
        ("coalesce(d, d)", [FAR, -FAR, None]),
        (
            "d + interval 1 microsecond",
            [FAR + timedelta(microseconds=1), timedelta(microseconds=1) - FAR, None],
        ),
    ],
)
def test_an_interval_is_a_duration_however_long(expression: str, found: list[Any]) -> None:
    start = datetime(2013, 1, 1, tzinfo=UTC)
    columns = {
        "until": [datetime(9999, 12, 31, tzinfo=UTC), start - timedelta(microseconds=1), None],
        "since": [start, start, start],
        "d": [FAR, -FAR, None],
    }
    for text in (f"select {expression} as x", f"select * replace ({expression} as d)"):
        made = rows(f"{text} from segments", columns)
        assert [each.get("x", each.get("d")) for _, each in made] == found


def test_an_interval_that_no_duration_holds_fails_alone() -> None:
    made, failed = applied("select to_days(n) as x from segments", {"n": [1, 2_000_000_000, 3]})
    assert [row for row, _ in made] == [0, 2]
    assert list(failed) == [1]


def test_a_division_by_zero_is_null_or_infinity() -> None:
    text = (
        "select x // y as a, x % y as b, mod(x, y) as c, divide(x, y) as d, x / y as e, f // y as g"
    )
    made = rows(f"{text} from segments", {"x": [7, 7], "y": [0, 2], "f": [7.0, 7.0]})
    assert [list(each.values()) for _, each in made] == [
        [None, None, None, None, float("inf"), None],
        [3, 1, 1, 3, 3.5, 3.5],
    ]
    assert Expression("x // y is null").answers(pa.record_batch({"x": [7], "y": [0]}))[
        0
    ].tolist() == [True]


CASES = {"id": [1], "ID": [2], "k": [3]}


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("select id, ID from segments", {"id": 1, "ID": 2}),
        ("select ID + 1 as x from segments", {"x": 3}),
        ("select id + k as x, ID from segments", {"x": 4, "ID": 2}),
        ("select * exclude (k) from segments", {"id": 1, "ID": 2}),
    ],
)
def test_columns_that_differ_in_case_are_read_by_the_letter(text: str, made: Any) -> None:
    assert rows(text, CASES) == [(0, made)]


@pytest.mark.parametrize(
    "text",
    [
        "select id + ID as x from segments",
        "select Id as x from segments",
        "select k from segments where id < ID",
        "select * exclude (id) from segments",
        "select * replace (7 as ID) from segments",
        "select * rename (id as x) from segments",
    ],
)
def test_columns_that_sql_cannot_tell_apart_are_refused(text: str) -> None:
    with pytest.raises(UserFunctionError, match="cannot tell the columns id and ID apart"):
        Query(text)(pa.record_batch(CASES).append_column("__row__", pa.array(range(1))))


def test_intervals_of_months_are_refused() -> None:
    with pytest.raises(UserFunctionError, match="intervals of months in x"):
        raise_first("select interval 1 month as x from segments")


def raise_first(text: str) -> None:
    """What all rows have failed with."""
    Query(text)(pa.record_batch(TRIPS).append_column("__row__", pa.array(range(4))))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("select kn from segments", "names the column kn, which the batch does not have"),
        ("select * replace (1 as kn) from segments", "names the column kn"),
        ("select * rename (kn as far) from segments", "names the column kn"),
        ("select *, kn + 1 as x from segments", "names the column kn"),
        ("select *, 1 as km from segments", "makes a column km, which the batch has too"),
        ("select km || [1] as x from segments", "Binder Error"),
        ("select hours.x as x from segments", "hours"),
    ],
)
def test_a_text_that_does_not_fit_the_columns_fails_for_all_rows(text: str, why: str) -> None:
    made, failed = applied(text, TRIPS)
    assert made == []
    assert len(failed) == 4
    assert all(why in each for each in failed.values())


def test_a_text_is_checked_against_a_schema_before_there_are_rows() -> None:
    schema = pa.schema({"id": pa.int64(), "km": pa.float64()})
    Query("select km / 2 as half from segments").check(schema)
    with pytest.raises(UserFunctionError, match="names the column hours"):
        Query("select km / hours as speed from segments").check(schema)


def test_rows_that_cannot_be_computed_with_fail_alone() -> None:
    columns = {"id": list(range(9)), "text": ["1", "2", "x", "4", "", "6", "7", "8", "y"]}
    made, failed = applied("select id, text::int as n from segments where id > 1", columns)
    assert [row for row, _ in made] == [3, 5, 6, 7]
    assert sorted(failed) == [2, 4, 8]
    assert "Could not convert string 'x' to INT32" in failed[2]


def test_an_author_may_have_a_row_fail_and_says_why() -> None:
    text = "select id, case when id = 2 then error('two!') else id end as n from segments"
    made, failed = applied(text, TRIPS)
    assert [row for row, _ in made] == [0, 2, 3]
    assert list(failed) == [1]
    assert "two!" in failed[1]


def test_a_column_that_is_excluded_need_not_be_there() -> None:
    assert rows("select * exclude (km, note) from segments where id = 2") == [
        (1, {"id": 2, "hours": 0.5})
    ]


def test_of_a_batch_without_rows_nothing_is_made() -> None:
    batch = pa.RecordBatch.from_pylist([], pa.schema({"id": pa.int64()}))
    assert rows("select id + 1 as n from segments", batch) == []


numbers = st.one_of(st.none(), st.integers(-100, 100))
trips = st.lists(
    st.fixed_dictionaries(
        {"a": numbers, "b": numbers, "text": st.sampled_from(["1", "2", "x", "30"])}
    ),
    min_size=1,
    max_size=20,
)
SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64(), "text": pa.string()})


def by_hand(row: dict[str, Any]) -> list[dict[str, Any]] | None:
    """What TEXT makes of a row; None: it fails."""
    if row["a"] is None or row["a"] <= 0:
        return []
    if row["text"] == "x":
        return None
    total = None if row["b"] is None else row["a"] + row["b"]
    return [{**row, "total": total, "n": int(row["text"])}]


TEXT = "select *, a + b as total, text::bigint as n from segments where a > 0"


@given(trips, st.integers(0, 20))
def test_a_text_gives_what_a_loop_gives_however_rows_are_batched(
    segments: list[dict[str, Any]], cut: int
) -> None:
    query = Query(TEXT)
    for part in (segments, segments[:cut], segments[cut:]):
        if not part:
            continue
        batch = pa.RecordBatch.from_pylist(part, SCHEMA)
        leaves = apply_to_columns(query, (), Columns.of(batch))
        hand = [(row, by_hand(each)) for row, each in enumerate(part)]
        expected = [(row, each) for row, made in hand for each in made or ()]
        found = to_dicts(leaves.segments)
        parents = range(len(found)) if leaves.parents is None else leaves.parents.tolist()
        assert [*zip(parents, found, strict=True)] == expected
        assert [row for row, _ in leaves.failures] == [row for row, made in hand if made is None]


@given(trips)
def test_a_condition_holds_where_it_is_true_and_neither_for_null_nor_for_rows_that_fail(
    segments: list[dict[str, Any]],
) -> None:
    holds, failed = Expression("a > 0 and text::bigint > 1").answers(
        pa.RecordBatch.from_pylist(segments, SCHEMA)
    )
    positive = [each["a"] is not None and each["a"] > 0 for each in segments]
    fails = [row for row, each in enumerate(segments) if positive[row] and each["text"] == "x"]
    assert holds.tolist() == [
        positive[row] and each["text"] != "x" and int(each["text"]) > 1
        for row, each in enumerate(segments)
    ]
    assert [row for row, _ in failed] == fails
