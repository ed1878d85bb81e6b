"""The output `sql` writes columns as it writes the same segments in dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.sql_databases import Database, named
from tests.support.windows.column_strategies import arrays

from onyx.errors import UserError
from onyx.flow.columns.record_batch import Columns, from_dicts, to_dicts
from onyx.plugins.registry import build_output
from onyx.plugins.sql import rows as sql_rows

pytestmark = pytest.mark.server

Make = Callable[..., Any]
NOON = datetime(2026, 3, 1, 12, 0, 0, 25, UTC)
BERLIN = pa.timestamp("us", "Europe/Berlin")


@pytest.fixture
def output(request: pytest.FixtureRequest) -> Iterator[Make]:
    made = []

    def make(database: Database, table: str = "t", **options: Any) -> Any:
        context = plugin_context({**named(database.url), "table": table, **options})
        made.append(build_output("sql", context))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def no_dicts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(columns: Columns) -> None:
        raise AssertionError("made dicts of columns")

    monkeypatch.setattr(sql_rows, "to_dicts", refuse)


def batch(segments: list[dict[str, Any]]) -> pa.RecordBatch:
    return from_dicts(segments)[0].record_batch


def columns(**given: Any) -> pa.RecordBatch:
    return Columns.of(pa.RecordBatch.from_pydict(given)).record_batch


def write_columns(output: Any, *batches: pa.RecordBatch) -> None:
    for each in batches:
        output.write_columns(each)
    output.flush()


def contents(database: Database, table: str) -> list[Any]:
    with database.engine.connect() as connection:
        if database.kind == "postgresql":
            connection.exec_driver_sql("SET timezone = 'UTC'")
        query = f"SELECT CAST(v AS TEXT), v IS NULL FROM {table} ORDER BY n"
        return [tuple(row) for row in connection.exec_driver_sql(query)]


USUAL: list[tuple[str, pa.Array]] = [
    ("SMALLINT", pa.array([-7, None, 2**15 - 1], pa.int16())),
    ("INTEGER", pa.array([1, None, -(2**31)])),
    ("BIGINT", pa.array([2**63 - 1, None, 0], pa.uint64())),
    ("DOUBLE PRECISION", pa.array([0.1 + 0.2, None, -0.0])),
    ("DOUBLE PRECISION", pa.array([0.1, None, 1e300], pa.float64()).cast(pa.float32(), safe=False)),
    ("DOUBLE PRECISION", pa.array([1, None, 2**60 + 1])),
    ("NUMERIC(12,6)", pa.array([Decimal("1.500000"), None, Decimal("-0.000001")])),
    ("NUMERIC(12,2)", pa.array([3, None, -4])),
    ("BOOLEAN", pa.array([True, None, False])),
    ("VARCHAR(9)", pa.array(["", None, 'a"b,\n\\.'])),
    ("TEXT", pa.array(["null", "\\N", "ü\t'"])),
    ("TEXT", pa.nulls(3)),
    ("TIMESTAMP", pa.array([NOON, None, datetime.max.replace(tzinfo=UTC)])),
    ("TIMESTAMP", pa.array([NOON, None, NOON], BERLIN)),
    ("DATE", pa.array([date.min, None, date(2026, 2, 28)])),
    ("TIME", pa.array([time(1, 2, 3), None, time.max])),
]
POSTGRESQL = [
    ("TIMESTAMPTZ", pa.array([NOON, None, datetime(1, 1, 1, tzinfo=UTC)])),
    ("TIMESTAMPTZ", pa.array([NOON, None, NOON], BERLIN)),
    ("BYTEA", pa.array([b"\x00\xff", None, b""])),
    ("BYTEA", pa.array([b"skipped", b"\x00\xff", None, b""]).slice(1)),
    ("DOUBLE PRECISION", pa.array([float("nan"), float("inf"), float("-inf")])),
    ("CHAR(4)", pa.array(["ab", None, "abcd"])),
]


def ids(each: Any) -> str | None:
    return str(each.type) if isinstance(each, pa.Array) else None


def same(database: Database, output: Make, kind: str, array: pa.Array) -> list[Any]:
    """What both ways leave in a table."""
    for table in ("of_dicts", "of_columns"):
        database.run(f"CREATE TABLE {table} (v {kind}, n INTEGER)")
    rows = pa.record_batch([array, pa.array(range(len(array)))], names=["v", "n"])
    write_columns(output(database, "of_columns"), rows)
    writer = output(database, "of_dicts")
    writer.write(to_dicts(Columns(rows)))
    writer.flush()
    found = contents(database, "of_columns")
    assert found == contents(database, "of_dicts")
    assert len(found) == len(array)
    return found


@pytest.mark.short(10)
@pytest.mark.parametrize(("kind", "array"), USUAL, ids=ids)
def test_usual_types_arrive_as_from_dicts_without_making_any(
    database: Database, output: Make, no_dicts: None, kind: str, array: pa.Array
) -> None:
    same(database, output, kind, array)


@pytest.mark.short(3)
@pytest.mark.parametrize(("kind", "array"), POSTGRESQL, ids=ids)
def test_types_of_postgresql_too(
    postgresql_database: Database, output: Make, no_dicts: None, kind: str, array: pa.Array
) -> None:
    same(postgresql_database, output, kind, array)


def test_names_with_percent_signs_are_those_of_the_table(database: Database, output: Make) -> None:
    names = ["%", "a%b", "c%%d", "%s", "%(x)s"]

    def run(statement: str) -> Any:  # by the driver without parameters, so nothing is doubled
        with database.engine.connect() as connection:
            cursor: Any = connection.connection.cursor()
            cursor.execute(statement)
            found = cursor.fetchall() if cursor.description else []
            connection.connection.commit()
        return found

    listed = ", ".join(f'"{name}" INTEGER' for name in names)
    run(f"CREATE TABLE t ({listed})")
    rows = [dict.fromkeys(names, n) for n in range(3)]
    write_columns(output(database), batch(rows[:2]))
    writer = output(database)
    writer.write(rows[2:])
    writer.flush()
    assert [tuple(row) for row in run("SELECT * FROM t ORDER BY 1")] == [(n,) * 5 for n in range(3)]


@pytest.mark.short(4)
@pytest.mark.parametrize(
    ("kind", "array"),
    [
        ("TIMESTAMP", pa.array(["2026-03-01T12:00:00Z", None])),
        ("NUMERIC(12,6)", pa.array([0.1 + 0.2, None])),
        ("REAL", pa.array([0.1, None])),
        ("JSON", pa.array([{"a": 1}, None])),
        ("DATE", pa.array([NOON, None])),
    ],
    ids=ids,
)
def test_other_types_arrive_as_from_dicts(
    database: Database, output: Make, kind: str, array: pa.Array
) -> None:
    same(database, output, kind, array)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(found=arrays(pa.string(), st.text(st.characters(codec="utf-8", exclude_characters="\0")), 5))
def test_any_text_arrives(database: Database, output: Make, found: pa.Array) -> None:
    database.run("DROP TABLE IF EXISTS texts")
    database.run("CREATE TABLE texts (v TEXT, n INTEGER)")
    rows = pa.record_batch([found, pa.array(range(5))], names=["v", "n"])
    write_columns(output(database, "texts"), rows)
    assert [row[0] for row in database.rows("SELECT v FROM texts ORDER BY n")] == found.to_pylist()


def test_a_table_of_one_column_takes_nulls(database: Database, output: Make) -> None:
    database.run("CREATE TABLE t (v TEXT)")
    write_columns(output(database), columns(v=["a", None, ""]))
    assert database.rows("SELECT v FROM t") == [("a",), (None,), ("",)]


def test_keys_go_where_the_options_say(database: Database, output: Make) -> None:
    database.run('CREATE TABLE t ("a b" INTEGER, "c%" INTEGER DEFAULT 7, "d""" TEXT)')
    options = {"columns": {"x": "a b", "y": 'd"'}}
    write_columns(output(database, **options), columns(x=[1, 2], y=["p", "q"], other=[0, 0]))
    assert database.rows("SELECT * FROM t") == [(1, 7, "p"), (2, 7, "q")]


def test_dicts_and_columns_of_one_transaction_keep_their_order(
    database: Database, output: Make
) -> None:
    database.run("CREATE TABLE t (n INTEGER PRIMARY KEY, v TEXT)")
    writer = output(database, mode="upsert", keys=["n"])
    writer.write([{"n": 1, "v": "dict"}, {"n": 2, "v": "dict"}])
    writer.write_columns(batch([{"n": 1, "v": "columns"}, {"n": 3, "v": "columns"}]))
    writer.write_columns(batch([{"n": 3, "v": "later"}, {"n": 3, "v": "last"}]))
    writer.write([{"n": 2, "v": "last"}])
    writer.flush()
    assert writer.durable() == 7
    assert sorted(database.rows("SELECT * FROM t")) == [(1, "columns"), (2, "last"), (3, "last")]


@pytest.mark.parametrize(
    ("kind", "array", "why"),
    [
        ("INTEGER", pa.array([1, 2**40]), "key 'v' of a segment holds an int that is too large"),
        ("INTEGER", pa.array(["x"]), "holds a str; column 'v'"),
        ("TEXT", pa.array([1]), "holds an int"),
        ("VARCHAR(2) NOT NULL", pa.array(["a", None]), "no value for column 'v'"),
        ("DATE", pa.array([2**30], pa.int32()).cast(pa.date32()), "Python cannot hold"),
    ],
    ids=ids,
)
def test_what_does_not_fit_is_reported_as_with_dicts(
    postgresql_database: Database, output: Make, kind: str, array: pa.Array, why: str
) -> None:
    postgresql_database.run(f"CREATE TABLE t (v {kind})")
    with pytest.raises(UserError, match=why):
        output(postgresql_database).write_columns(pa.record_batch([array], names=["v"]))


def test_a_key_without_a_column_is_reported(database: Database, output: Make) -> None:
    database.run("CREATE TABLE t (v INTEGER)")
    with pytest.raises(UserError, match=r"no column for key 'w' of a segment"):
        output(database).write_columns(columns(v=[1], w=[2]))


def test_what_the_database_refuses_is_reported_without_rows(
    postgresql_database: Database, output: Make
) -> None:
    postgresql_database.run("CREATE TABLE t (v INTEGER CHECK (v < 5))")
    with pytest.raises(
        UserError, match=r"writing to table 't' failed: .*check constraint"
    ) as raised:
        write_columns(output(postgresql_database), columns(v=[1, 7]))
    assert "7" not in str(raised.value)


@pytest.mark.parametrize(
    "makes",
    [
        ["CREATE TABLE base (v INTEGER)", "CREATE VIEW t AS SELECT v FROM base"],
        [
            "CREATE TABLE base (v INTEGER)",
            "CREATE TABLE t (v INTEGER)",
            "CREATE RULE elsewhere AS ON INSERT TO t DO INSTEAD INSERT INTO base VALUES (NEW.v)",
        ],
    ],
    ids=["view", "rule"],
)
def test_where_copy_cannot_write_statements_do(
    postgresql_database: Database, output: Make, no_dicts: None, makes: list[str]
) -> None:
    for each in makes:
        postgresql_database.run(each)
    write_columns(output(postgresql_database), columns(v=[1, 2]))
    assert postgresql_database.rows("SELECT v FROM base") == [(1,), (2,)]


def test_committed_columns_are_written_once_by_whoever_finishes(
    database: Database, output: Make
) -> None:
    database.run("CREATE TABLE t (v INTEGER)")
    tokens: list[Any] = []

    def commit(token: Any, segments: int) -> None:
        tokens.append((token, segments))

    writer = output(database)
    writer.begin(commit)
    writer.write_columns(columns(v=[1, 2]))
    writer.write([{"v": 3}])
    writer.flush()
    ((token, segments),) = tokens
    assert segments == 3
    output(database).finish(token)
    assert database.rows("SELECT v FROM t") == [(1,), (2,), (3,)]
