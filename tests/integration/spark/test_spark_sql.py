"""SQL on Spark: where its dialect agrees with that of `sql`, and what no query of it may do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.spark.session import local_spark

from onyx.errors import FailsAgain, UserFunctionError
from onyx.flow.columns.record_batch import Columns, to_dicts
from onyx.flow.leaves import apply_to_columns
from onyx.spark.child.request import StageRequest
from onyx.spark.child.run_stage import queried
from onyx.sql.batches import Query

pytestmark = pytest.mark.server
ROWS = pa.table(
    {
        "n": [1, -7, None, 10],
        "m": [2, 2, 2, 4],
        "f": [0.5, -1.5, None, 2.5],
        "name": ["Ada", " grace ", None, "x-y-z"],
        "seen": pa.array(
            [datetime(2026, month, 3, 4, 5, 6, tzinfo=UTC) for month in (1, 2, 3, 12)],
            pa.timestamp("us", "UTC"),
        ),
        "tags": [["a", "b"], [], None, ["c"]],
        "at_home": [True, False, None, True],
    }
)
AGREE = [
    "n + m", "n - m * 2", "n / m", "n % m", "-n", "abs(n)", "n > m", "n = 1 or m = 4",
    "n between 0 and 5", "n in (1, 10)", "n is null", "coalesce(n, 0)", "nullif(n, 1)",
    "case when n > 0 then 'up' when n < 0 then 'down' else 'none' end", "greatest(n, m)",
    "round(f)", "floor(f)", "ceil(f)", "sqrt(m)", "power(m, 2)", "sign(n)", "ln(m)", "upper(name)",
    "lower(name)", "trim(name)", "length(name)", "name || '!'", "substring(name, 1, 2)",
    "replace(name, '-', '+')", "name like 'A%'", "reverse(name)", "lpad(name, 6, '.')",
    "repeat(name, 2)", "split_part(name, '-', 1)", "contains(name, 'a')", "md5(name)",
    "left(name, 2)", "year(seen)", "month(seen)", "day(seen)", "hour(seen)", "minute(seen)",
    "date_trunc('month', seen)", "cast(seen as date)", "seen > timestamp '2026-02-01 00:00:00Z'",
    "seen + interval '1' hour", "extract(year from seen)", "quarter(seen)", "cast(n as double)",
    "cast(n as string)", "cast('12' as int)", "not at_home", "at_home and n > 0",
    "cast(1.25 as decimal(5, 2))", "array_contains(tags, 'a')",
]  # fmt: skip
"""Expressions with one result in both, row by row."""
DIFFER = {
    "concat(name, 'a', null)": "DuckDB takes null for nothing in it",
    "tags[1]": "lists begin with 1 in DuckDB, with 0 in Spark",
    "cast(f as int)": "DuckDB rounds, Spark cuts off",
    "starts_with(name, 'A')": "Spark has startswith",
    "dayofweek(seen)": "Sunday is 0 in DuckDB, 1 in Spark",
    "m // 2": "Spark has div",
    "n / 0": "DuckDB says infinity or null, Spark fails",
    "cast(name as int)": "a row that fails does so alone in DuckDB; in Spark its query fails",
    "strftime(seen, '%Y')": "Spark has date_format",
    "list_transform(tags, lambda t: t || '!')": "Spark has transform(tags, t -> ...)",
    "len(tags)": "Spark has size",
    "epoch(seen)": "Spark has unix_timestamp",
    "regexp_matches(name, 'A.a')": "Spark has rlike",
    "name::varchar": "Spark wants a length with varchar",
}
"""Expressions that do not, and why."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


def by_spark(spark: Any, text: str, **params: Any) -> list[dict[str, Any]]:
    session = spark.newSession()
    frame = session.createDataFrame(ROWS)
    request = StageRequest(stage="sparkSql", query=text, params=params)
    made = queried(session, [(None, frame)], request).toArrow()
    return to_dicts(Columns.of(made.combine_chunks().to_batches()[0]))


def by_duckdb(text: str) -> list[dict[str, Any]]:
    (batch,) = ROWS.combine_chunks().to_batches()
    leaves = apply_to_columns(Query(text), (), Columns.of(batch))
    if leaves.failures:
        raise leaves.failures[0][1]
    return to_dicts(leaves.segments)


def in_both(spark: Any, expressions: list[str]) -> dict[str, tuple[list[Any], list[Any]]]:
    """What expressions give for each row: by DuckDB, by Spark."""
    items = ", ".join(f"{each} as x{number}" for number, each in enumerate(expressions))
    text = f"select {items} from segments"
    rows = by_duckdb(text), by_spark(spark, text)
    return {
        each: ([row[f"x{n}"] for row in rows[0]], [row[f"x{n}"] for row in rows[1]])
        for n, each in enumerate(expressions)
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float | Decimal):
        return math.isclose(one, other)
    return bool(one == other)


@pytest.mark.slow
def test_the_dialects_agree_about_what_most_rows_need(spark: Any) -> None:
    found = in_both(spark, AGREE)
    differ = {
        each: values for each, values in found.items() if not all(map(same, values[0], values[1]))
    }
    assert differ == {}


@pytest.mark.slow
def test_where_the_dialects_differ_is_listed(spark: Any) -> None:
    agree = []
    for each in DIFFER:
        try:
            here, there = in_both(spark, [each])[each]
        except Exception:
            continue  # one of them refuses it
        if all(map(same, here, there)):
            agree.append(each)
    assert agree == []


def test_a_query_has_params_and_aggregates(spark: Any) -> None:
    text = "select m, count(*) as c from segments where m >= :least group by m order by m; "
    assert by_spark(spark, text, least=3) == [{"m": 4, "c": 1}]
    assert by_spark(spark, "with a as (select m from segments) select max(m) as m from a") == [
        {"m": 4}
    ]


@pytest.mark.parametrize(
    "text",
    [
        "select * from text.`/etc/passwd`",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                "drop view segments",
                "select 1; select 2",
                "create table t as select * from segments",
                "insert into t select * from segments",
                "from segments insert overwrite directory 'FOLDER/out' select *",
                "set spark.sql.runSQLOnFiles = true",
                "add jar 'FOLDER/x.jar'",
                "select * from parquet.`FOLDER/secret`",
                "select * from csv.`FOLDER`",
                "select '${env:HOME}' as x, ${spark.app.id} as y from segments",
            )
        ),
    ],
)
def test_no_query_reads_files_or_does_more_than_select(
    spark: Any, tmp_path: Path, text: str
) -> None:
    pq.write_table(pa.table({"secret": [1]}), tmp_path / "secret")
    with pytest.raises((FailsAgain, UserFunctionError)):
        by_spark(spark, text.replace("FOLDER", str(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_variables_are_not_put_into_a_query(spark: Any) -> None:
    (row,) = by_spark(spark, "select '${env:HOME}' as x from segments limit 1")
    assert row == {"x": "${env:HOME}"}
