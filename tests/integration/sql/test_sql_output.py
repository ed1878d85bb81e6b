"""The output `sql` with SQLite and a real PostgreSQL: what becomes of segments, and the report
of those that do not fit."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs.plugin_context import plugin_context
from tests.support.servers.postgresql import PostgreSQL
from tests.support.servers.sql_databases import Database, named

from onyx.errors import Unavailable, UserError
from onyx.ids import GroupId
from onyx.plugins.protocol import Output
from onyx.plugins.registry import build_output
from onyx.testing.plugin_kit import SEGMENTS, check_output

pytestmark = pytest.mark.server

Make = Callable[..., Output]


@pytest.fixture
def output(request: pytest.FixtureRequest) -> Iterator[Make]:
    made = []

    def make(database: Database | str, table: str = "t", **options: Any) -> Output:
        url = database if isinstance(database, str) else database.url
        context = plugin_context({**named(url), "table": table, **options})
        made.append(build_output("sql", context))
        return made[-1]

    yield make
    for each in made:
        each.close()


def write(output: Output, *segments: dict[str, Any]) -> None:
    output.write(list(segments))
    output.flush()
    assert output.durable() == len(segments)


def refusal(output: Output, *segments: dict[str, Any]) -> str:
    with pytest.raises(UserError) as raised:
        write(output, *segments)
    assert str(raised.value).startswith("job 'flights', task 'work': ")
    return str(raised.value).removeprefix("job 'flights', task 'work': ")


def test_it_keeps_to_the_protocol_of_outputs(database: Database) -> None:
    database.run("CREATE TABLE lines (n INTEGER, text VARCHAR(20))")

    def start() -> tuple[Callable[[GroupId], Output], Callable[[], list[dict[str, Any]]]]:
        database.run("DELETE FROM lines")

        def make(incarnation: GroupId) -> Output:
            options = {**named(database.url), "table": "lines", "rollSegments": 4}
            return build_output("sql", plugin_context(options, incarnation=incarnation))

        def read_back() -> list[dict[str, Any]]:
            return [
                {"n": n, "text": text} for n, text in database.rows("SELECT n, text FROM lines")
            ]

        return make, read_back

    check_output(start, SEGMENTS[:6])
    assert database.writers() == []


def test_every_key_goes_to_the_column_of_its_name(database: Database, output: Make) -> None:
    database.run(
        'CREATE TABLE t ("order" INTEGER, "from ""a"" %(b)s \\:c" VARCHAR(9), d INTEGER DEFAULT 7)'
    )
    odd = 'from "a" %(b)s :c'
    write(output(database), {"order": 1, odd: "x"}, {"d": None, "order": 2}, {"order": 3, "d": 4})
    assert sorted(database.rows("SELECT * FROM t")) == [(1, "x", 7), (2, None, None), (3, None, 4)]


@pytest.mark.parametrize(
    ("columns", "row"), [(["b", "c"], (None, 2, 3)), ({"b": "a", "d": "c"}, (2, None, 4))]
)
def test_columns_say_which_keys_are_written_and_where(
    database: Database, output: Make, columns: Any, row: Any
) -> None:
    database.run("CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER)")
    write(output(database, columns=columns), {"a": 1, "b": 2, "c": 3, "d": 4})
    assert database.rows("SELECT a, b, c FROM t") == [row]


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.short(10)
@pytest.mark.parametrize(
    ("kind", "value", "in_sqlite", "in_postgresql"),
    [
        ("SMALLINT", -7, "-7", "-7"),
        ("BIGINT", 2**63 - 1, str(2**63 - 1), str(2**63 - 1)),
        ("DOUBLE PRECISION", 1, "1.0", "1"),
        ("DOUBLE PRECISION", 0.1, "0.1", "0.1"),
        ("NUMERIC(9,2)", "12.30", "12.3", "12.30"),
        ("BOOLEAN", True, "1", "true"),
        ("VARCHAR(3)", "äöü", "äöü", "äöü"),
        ("TEXT", None, None, None),
        ("TIMESTAMP", NOON, "2026-03-01 12:00:00.000000", "2026-03-01 12:00:00"),
        (
            "TIMESTAMP",
            "2026-03-01T13:00:00+01:00",
            "2026-03-01 12:00:00.000000",
            "2026-03-01 12:00:00",
        ),
        ("DATE", "2026-03-01", "2026-03-01", "2026-03-01"),
        ("DATE", NOON, "2026-03-01", "2026-03-01"),
        ("TIME", "12:30:00", "12:30:00.000000", "12:30:00"),
        ("JSON", {"a": [1, None]}, '{"a": [1, null]}', '{"a": [1, null]}'),
        ("JSON", None, None, None),
        ("JSON", {"at": NOON, "b": b"\0"}, *['{"at": "2026-03-01T12:00:00Z", "b": "AA=="}'] * 2),
    ],
)
def test_values_arrive_as_the_column_has_them(
    database: Database,
    output: Make,
    kind: str,
    value: Any,
    in_sqlite: str | None,
    in_postgresql: str | None,
) -> None:
    database.run(f"CREATE TABLE t (v {kind}, n INTEGER)")
    write(output(database), {"v": value, "n": 1})
    assert database.rows("SELECT CAST(v AS TEXT) FROM t") == [
        (in_sqlite if database.kind == "sqlite" else in_postgresql,)
    ]


@pytest.mark.short(4)
@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ("TIMESTAMPTZ", NOON, "2026-03-01 12:00:00+00"),
        ("TIMESTAMPTZ", "2026-03-01 12:00", "2026-03-01 12:00:00+00"),
        ("UUID", "0b7ad6d2-6bd6-4a8b-8d5c-1d1a7f2f4c11", "0b7ad6d2-6bd6-4a8b-8d5c-1d1a7f2f4c11"),
        ("JSONB", [{"a": 1.5}], '[{"a": 1.5}]'),
        ("INTEGER[]", [1, 2], "{1,2}"),
        ("BYTEA", b"\x00\xff", "\\x00ff"),
        ("colour", "red", "red"),
        ("INET", "10.0.0.1", "10.0.0.1/32"),
    ],
)
def test_types_of_postgresql(
    postgresql_database: Database, output: Make, kind: str, value: Any, read: str
) -> None:
    postgresql_database.run("CREATE TYPE colour AS ENUM ('red', 'green')")
    postgresql_database.run(f"CREATE TABLE t (v {kind})")
    write(output(postgresql_database), {"v": value})
    with postgresql_database.engine.connect() as connection:
        connection.exec_driver_sql("SET timezone = 'UTC'")
        [found] = connection.exec_driver_sql("SELECT v::text FROM t").scalars()
    assert found == read


@pytest.mark.short(10)
@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("INTEGER", "1", "holds a str; column 'v' of table 't' is INTEGER"),
        ("INTEGER", 1.5, "holds a float"),
        ("INTEGER", True, "holds a bool"),
        ("INTEGER", 2**63, "holds an int that is too large for it"),
        ("DOUBLE PRECISION", "1", "holds a str"),
        ("NUMERIC", "one", "holds a str that is no number"),
        ("BOOLEAN", 1, "holds an int"),
        ("TEXT", 1, "holds an int"),
        ("TEXT", {"a": 1}, "holds a dict, which only a JSON column takes"),
        ("TEXT", [1], "holds a list, which only a JSON column takes"),
        ("TIMESTAMP", 1_700_000_000, "holds an int"),
        ("TIMESTAMP", "soon", r"holds a str in another form \(ISO 8601 is understood\)"),
        ("DATE", "1.3.2026", "holds a str in another form"),
        ("JSON", {"at": float("nan")}, "holds something that JSON cannot say"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_key_and_column_and_not_shown(
    database: Database, output: Make, kind: str, value: Any, why: str
) -> None:
    database.run(f"CREATE TABLE t (v {kind})")
    reported = refusal(output(database), {"v": value})
    assert reported.startswith("key 'v' of a segment ")
    assert re.search(why, reported)


def test_what_no_column_of_sqlite_can_store_is_told(
    sqlite_database: Database, output: Make
) -> None:
    sqlite_database.run("CREATE TABLE t (v)")
    writer = output(sqlite_database)
    write(writer, {"v": 1}, {"v": "x"}, {"v": b"x"})
    assert "too large" in refusal(output(sqlite_database), {"v": 2**63})
    assert "only a JSON column" in refusal(output(sqlite_database), {"v": [1]})


def test_what_only_postgresql_cannot_store_is_told(
    postgresql_database: Database, output: Make
) -> None:
    postgresql_database.run("CREATE TYPE colour AS ENUM ('red', 'green')")
    postgresql_database.run("CREATE TABLE t (n INTEGER, s VARCHAR(3), c colour)")
    found = [
        refusal(output(postgresql_database), segment)
        for segment in ({"n": 2**31}, {"s": "four"}, {"s": "\0"}, {"c": "blue"})
    ]
    assert [reported.split("holds ")[1].split(";")[0] for reported in found] == [
        "an int that is too large for it",
        "a str of 4 characters, but at most 3 fit",
        "a str with a NUL character, which the database cannot store",
        "something else than red, green",
    ]


@pytest.mark.parametrize(
    ("segment", "why"),
    [
        (
            {"id": 1, "name": "x", "nmae": 1},
            "has no column for key 'nmae' of a segment (did you mean name?)",
        ),
        ({"id": 1}, "a segment has no value for column 'name' of table 't', which must have one"),
        ({"id": 1, "name": None}, "a segment has no value for column 'name'"),
        ({}, "a segment has none of the columns of table 't'"),
    ],
)
def test_a_segment_that_is_no_row_is_told(
    database: Database, output: Make, segment: dict[str, Any], why: str
) -> None:
    database.run("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL, note TEXT)")
    assert why in refusal(output(database), segment)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"table": "flihgts"}, "is 'flihgts', a table that the database does not have (did you"),
        ({"table": "x"}, "'x', a table that the database does not have (create it"),
        ({"columns": ["id", "dealy"]}, "'dealy', which table 'flights' lacks (did you"),
        ({"columns": ["delay"]}, "option 'columns' lack 'id', which must have a value"),
        ({"mode": "upsert", "keys": ["x"]}, "option 'keys' names 'x', which 'flights' lacks"),
        ({"mode": "upsert", "keys": ["delay"]}, "option 'keys' are no primary key and no unique"),
    ],
)  # fmt: skip
def test_a_table_that_is_not_as_the_options_say_is_told_before_the_first_segment(
    database: Database, output: Make, options: dict[str, Any], why: str
) -> None:
    database.run("CREATE TABLE flights (id VARCHAR(9) NOT NULL, delay INTEGER)")
    with pytest.raises(UserError) as raised:
        output(database, **{"table": "flights", **options}).fence([])
    assert why in str(raised.value)


@pytest.mark.parametrize("constraint", ["PRIMARY KEY (a, b)", "UNIQUE (b, a)"])
def test_an_upsert_replaces_the_row_with_the_same_keys_and_leaves_other_columns_alone(
    database: Database, output: Make, constraint: str
) -> None:
    database.run(f"CREATE TABLE t (a INTEGER, b INTEGER, v INTEGER, w INTEGER, {constraint})")
    upsert = output(database, mode="upsert", keys=["a", "b"])
    upsert.write([{"a": 1, "b": 1, "v": 1, "w": 1}, {"a": 1, "b": 2, "v": 2}])
    upsert.write([{"a": 1, "b": 1, "v": 3}, {"a": 1, "b": 1, "v": 4}, {"b": 2, "a": 1}])
    upsert.flush()
    assert sorted(database.rows("SELECT a, b, v, w FROM t")) == [(1, 1, 4, 1), (1, 2, 2, None)]
    assert "no value for column 'b'" in refusal(upsert, {"a": 1})


def test_rows_that_the_database_refuses_are_told_without_what_is_in_them(
    database: Database, output: Make
) -> None:
    database.run("CREATE TABLE t (n INTEGER, secret VARCHAR(20) UNIQUE)")
    row = {"n": 1, "secret": "not-to-be-seen"}
    with pytest.raises(UserError, match=r"writing to table 't' failed: .*(?i:unique)") as raised:
        write(output(database), row, row)
    assert "not-to-be-seen" not in "".join(traceback.format_exception(raised.value))
    assert database.rows("SELECT n FROM t") == []


def test_a_locked_database_is_tried_again(sqlite_database: Database, output: Make) -> None:
    sqlite_database.run("CREATE TABLE t (n INTEGER)")
    writer = output(sqlite_database.url + "?timeout=0.01")
    writer.write([{"n": 1}])
    with sqlite_database.engine.connect() as connection:
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match=r"task 'work': writing to table 't'.*locked"):
            writer.flush()
    writer.tick()
    assert sqlite_database.rows("SELECT n FROM t") == [(1,)]


def test_a_full_disk_is_tried_again(sqlite_database: Database, output: Make) -> None:
    sqlite_database.run("CREATE TABLE t (s TEXT)")
    writer = output(sqlite_database)
    write(writer, {"s": "x"})
    with writer._store._engine.connect() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql("PRAGMA max_page_count = 5")
    writer.write([{"s": "x" * 100_000}])
    with pytest.raises(Unavailable, match="full"):
        writer.flush()
    with writer._store._engine.connect() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql("PRAGMA max_page_count = 5000")
    writer.tick()
    assert sqlite_database.rows("SELECT count(*) FROM t") == [(2,)]


@pytest.mark.slow
def test_a_server_that_goes_away_is_tried_again_and_nothing_is_there_twice(
    output: Make,
) -> None:
    server = PostgreSQL()
    try:
        database = Database(server.url())
        database.run("CREATE TABLE t (n INTEGER)")
        writer = output(database)
        write(writer, {"n": 1})
        server.stop()
        writer.write([{"n": 2}])
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"task 'work': writing to table 't'"):
                writer.flush()
        server.start()
        writer.tick()
        assert database.rows("SELECT n FROM t ORDER BY n") == [(1,), (2,)]
        writer.close()
    finally:
        server.close()


def test_a_server_that_refuses_us_is_told_without_the_password(
    postgresql: PostgreSQL, output: Make
) -> None:
    wrong = postgresql.url(password="also-not-to-be-seen")
    for url, why in (
        (wrong, "password authentication failed"),
        (postgresql.url("nowhere"), 'database "nowhere" does not exist'),
    ):
        reported = refusal(output(url), {"n": 1})
        assert why in reported
        assert "not-to-be-seen" not in reported


def test_a_table_that_may_not_be_written_is_told(
    postgresql_database: Database, postgresql: PostgreSQL, output: Make
) -> None:
    postgresql_database.run("CREATE TABLE t (n INTEGER)")
    postgresql_database.run("CREATE ROLE reader LOGIN PASSWORD 'r'")
    postgresql_database.run("GRANT USAGE ON SCHEMA public TO reader")
    postgresql_database.run("GRANT SELECT ON t TO reader")
    url = postgresql_database.url.replace("onyx:not-to-be-seen", "reader:r")
    reported = refusal(output(url), {"n": 1})
    assert "'onyx_positions', failed: permission denied" in reported
    postgresql_database.run("DROP OWNED BY reader")
    postgresql_database.run("DROP ROLE reader")


def test_a_url_from_the_environment(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_database.run("CREATE TABLE t (n INTEGER)")
    context = plugin_context({"urlEnv": "FLIGHTS_URL", "table": "t"})
    with pytest.raises(UserError, match="'urlEnv' names variable 'FLIGHTS_URL', which is not set"):
        build_output("sql", context)
    monkeypatch.setenv("FLIGHTS_URL", "postgresql://u:not-to-be-seen@h:port/d")
    with pytest.raises(UserError, match="option 'urlEnv' is no URL of a database") as raised:
        build_output("sql", context)
    assert raised.value.__suppress_context__
    monkeypatch.setenv("FLIGHTS_URL", sqlite_database.url)
    written = build_output("sql", context)
    write(written, {"n": 1})
    written.close()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "mydb://h/d"}, "option 'url' names 'mydb', a kind of database that is not"),
        ({"url": "oracle+cx_oracle://h/d"}, "whose driver 'cx_Oracle' is not installed"),
        ({"url": "sqlite://"}, "option 'url' leads to a database in memory"),
        ({"url": "sqlite:///:memory:"}, "option 'url' leads to a database in memory"),
        ({"url": "flights.db"}, "option 'url' is no URL"),
        ({}, "option 'url' is missing"),
        ({"url": "sqlite:///a", "urlEnv": "A"}, "option 'urlEnv' cannot be there"),
        ({"url": "sqlite:///a", "mode": "upsert"}, "option 'keys' is missing"),
        ({"url": "sqlite:///a", "keys": ["a"]}, "option 'keys' is only for mode: upsert"),
        ({"url": "sqlite:///a", "columns": []}, "option 'columns' is empty"),
        ({"url": "sqlite:///a", "positionsTable": "t"}, "'positionsTable' is the table to"),
        ({"url": "sqlite:///a", "rollBytes": 99_999_999}, "option 'rollBytes' is wrong"),
    ],
)  # fmt: skip
def test_wrong_options_are_told(options: Mapping[str, Any], why: str) -> None:
    with pytest.raises(UserError) as raised:
        build_output("sql", plugin_context({"table": "t", **options}))
    assert why in str(raised.value)


def test_a_relative_file_is_in_the_folder_of_the_workers_data(tmp_path: Path) -> None:
    Database(f"sqlite:///{tmp_path / 'here.db'}").run("CREATE TABLE t (n INTEGER)")
    context = plugin_context({"url": "sqlite:///here.db", "table": "t"}, data_dir=str(tmp_path))
    written = build_output("sql", context)
    write(written, {"n": 1})
    written.close()


def test_a_file_that_is_no_database_or_is_not_there_is_told(tmp_path: Path, output: Make) -> None:
    (tmp_path / "text").write_text("not a database\n" * 100)
    assert "file is not a database" in refusal(output(f"sqlite:///{tmp_path}/text"), {"n": 1})
    with pytest.raises(UserError, match=r"option 'url' leads to .*/b.db, which does not exist"):
        output(f"sqlite:///{tmp_path}/a/b.db")
