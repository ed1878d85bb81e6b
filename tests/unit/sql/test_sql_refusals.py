"""What a text of SQL may not say, and that the engine by itself would not do it either."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from onyx.errors import UserError, UserFunctionError
from onyx.sql.batches import Expression, Query
from onyx.sql.engine import Engine, RowsFailed
from onyx.sql.grammar import Grammar, Refused

ALLOWED = Path(__file__).parent / "functions_allowed.txt"

OF_SEVERAL_ROWS = {
    "select sum(km) as s from segments": "has the aggregate sum; which rows come together",
    "select count(*) as n from segments": "has the aggregate count_star",
    "select km, sum(km) over () as s from segments": "has a window function (over)",
    "select km, row_number() as n from segments": "which looks at several rows",
    "select distinct km from segments": "has distinct",
    "select * from segments limit 3": "has limit",
    "select * from segments order by km": "has order by",
    "select km from segments group by km": "has group by",
    "select km from segments group by all": "has group by",
    "select * from segments qualify row_number() over () = 1": "has qualify",
    "select * from segments tablesample 10%": "has sample behind segments",
    "select *, (select 1) as x from segments": "has a query within a query",
    "select *, exists(from segments) as x from segments": "has a query within a query",
    "select * from segments where km in (select km from segments)": "has a query within a query",
    "select * from segments join segments b on true": "joins segments",
    "select * from segments, segments b": "joins segments",
    "select * from segments asof join segments b using (km)": "joins segments",
    "select km from segments union all select km from segments": "combines several selects",
    "select * from (select * from segments)": "reads from a query within a query",
    "with a as (select 1) select * from segments": "has with",
    "select string_agg(name order by km) as names from segments": "has the aggregate string_agg",
}
OTHER_EACH_TIME = {
    "select random() as x from segments": "has random, whose result is another one each time",
    "select main.random() as x from segments": "has random",
    'select pg_catalog."RANDOM"() as x from segments': "has random",
    "select uuid() as x from segments": "another one each time",
    "select now() as x from segments": "another one each time",
    "select current_localtimestamp() as x from segments": "another one each time",
    "select age(at1) as x from segments": "has age, whose result is another one each time",
    "select nextval('s') as x from segments": "another one each time",
    "select * from segments where random() < 0.5": "another one each time",
    "select list_transform([1], lambda x: random()) as x from segments": "another one each time",
}
HOSTILE = {
    "select * from '/etc/passwd'": "reads from /etc/passwd",
    'select * from "/etc/passwd"': "reads from /etc/passwd",
    "select * from read_csv('/etc/passwd')": "reads with the table function read_csv",
    "select * from read_text('/etc/passwd')": "reads with the table function read_text",
    "select * from read_blob('/proc/self/environ')": "reads with the table function read_blob",
    "select * from segments, read_text('/etc/passwd')": "joins segments",
    "select * from segments, lateral (select read_text(km))": "joins segments",
    "select *, (from read_text('/etc/passwd')) as x from segments": "a query within a query",
    "select * from glob('/*')": "reads with the table function glob",
    "select * from query('select 1')": "reads with the table function query",
    "select query('select 1') as x from segments": "has the function query",
    "select * from query_table('segments')": "reads with the table function query_table",
    "select * from duckdb_settings()": "reads with the table function duckdb_settings",
    "select * from duckdb_secrets()": "reads with the table function duckdb_secrets",
    "select * from information_schema.tables": "reads from tables",
    "select * from main.segments": "nothing but segments",
    "select * from segments at (version => 1)": "has at clause behind segments",
    "select getenv('PATH') as x from segments": "has the unknown function getenv",
    "select current_setting('memory_limit') as x from segments": "has current_setting",
    "select getvariable('x') as x from segments": "has getvariable",
    "select set_config('a', 'b') as x from segments": "has the unknown function set_config",
    "select write_log('x') as x from segments": "has write_log",
    "select current_database() as x from segments": "has the function current_database",
    "select current_query() as x from segments": "has the function current_query",
    "select version() as x from segments": "has version",
    "select json_execute_serialized_sql('') as x from segments": "json_execute_serialized_sql",
    "select __internal_compress_string_hugeint('abc') as x from segments": "not about a row",
    "attach '/tmp/other.db'": "is not a select",
    "attach ':memory:' as other": "is not a select",
    "detach memory": "is not a select",
    "use memory": "is not a select",
    "pragma database_list": "is not a select",
    "pragma enable_external_access": "is not a select",
    "install httpfs": "is not a select",
    "load httpfs": "is not a select",
    "copy segments to '/tmp/out'": "is not a select",
    "copy (select 1) to '/tmp/out'": "is not a select",
    "export database '/tmp/out'": "is not a select",
    "import database '/tmp/out'": "is not a select",
    "set enable_external_access = true": "is not a select",
    "set lock_configuration = false": "is not a select",
    "reset threads": "is not a select",
    "call pragma_version()": "is not a select",
    "create table x as select 1": "is not a select",
    "create secret s (type s3)": "is not a select",
    "create macro m(x) as x": "is not a select",
    "insert into segments values (1)": "is not a select",
    "drop table segments": "is not a select",
    "prepare p as select 1": "is not a select",
    "execute p": "is not a select",
    "begin": "is not a select",
    "checkpoint": "is not a select",
    "explain analyze select * from segments": "is not a select",
    "select * from segments; drop table segments": "is not a select",
    "select * from segments; select * from segments": "has 2 statements, and must be one select",
}
WRITTEN_WRONG = {
    "": "has no statements",
    ";": "has no statements",
    "selekt 1": 'has a syntax error at or near "selekt" (character 1)',
    "select km / hours from segments": "computes a column without a name; write `... as name`",
    "select km, hours as km from segments": "has two columns called km",
    "select sqrt2(km) as x from segments": "has the unknown function sqrt2; did you mean sqrt?",
    "select * from trips": "reads from trips, and there is nothing but segments",
    "select 1 as one": "reads from nothing",
    "values (1)": "reads from values",
    "select *, $1 as x from segments": "has a parameter ($ or ?); write the value",
    "select * from segments where km > ?": "has a parameter ($ or ?)",
    "select columns('k.*') from segments": "has COLUMNS(...)",
    "select *, __row__ as n from segments": "names __row__, which Onyx adds by itself",
    "select km as __row__ from segments": "calls a column __row__",
    "select list_transform(l, x -> x + 1) as y from segments": "write lambda x: ...",
    "select * from segments where unnest(l) > 1": "has unnest in where",
    "select * from segments as s(a, b)": "has column name alias behind segments",
    "describe segments": "does not read from a table",
}


@pytest.mark.short(30)
@pytest.mark.parametrize(
    ("text", "why"),
    [*OF_SEVERAL_ROWS.items(), *OTHER_EACH_TIME.items(), *HOSTILE.items(), *WRITTEN_WRONG.items()],
)
def test_a_text_that_cannot_be_run_on_a_batch_is_refused_with_the_reason(
    text: str, why: str
) -> None:
    with pytest.raises(UserError) as raised:
        Query(text)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    "text",
    ["+".join(["a"] * 900), "+".join(["a"] * 30_000), "abs(" * 900 + "a" + ")" * 900,
     "[" * 5_000 + "a" + "]" * 5_000, "- " * 20_000 + "a"],
)  # fmt: skip
def test_a_text_that_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="nested too deep: more than 200 levels"):
        Query(f"select {text} as x from segments")


def test_a_text_that_is_nested_as_deep_as_it_may_be_is_run() -> None:
    text = "abs(" * 190 + "a" + ")" * 190
    (made,) = Query(f"select {text} as x from segments")(
        pa.record_batch({"__row__": [0], "a": [-1]})
    )
    assert made.column("x").to_pylist() == [1]


@pytest.mark.parametrize(
    "text",
    ["km > 1; drop table segments", "km > 1 limit 1", "true) or (select true", "km > 1 order by km",
     "true union select * from read_text('/etc/passwd')", "sum(km) > 1", "random() > 0.5",
     "exists(from read_text('/etc/passwd'))", "km > 1 group by all", "", "km >"],
)  # fmt: skip
def test_an_expression_is_one_condition_and_no_more(text: str) -> None:
    with pytest.raises(UserError, match=r"^sql "):
        Expression(text)


def test_the_place_of_a_mistake_is_counted_in_the_text_of_the_user() -> None:
    with pytest.raises(UserError, match=r"syntax error .*\(character 5\)"):
        Expression("km >) 3")


@pytest.mark.parametrize(
    "text",
    [
        "select * from read_csv('/etc/passwd', header = false)",
        "select * from read_text('/etc/passwd')",
        "select * from '/etc/passwd.csv'",
        "copy (select 1) to '{folder}/out.csv'",
        "attach '{folder}/other.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "set memory_limit = '100GB'",
        "set python_enable_replacements = true",
        "export database '{folder}/out'",
        "select * from frame",
        "select getenv('PATH')",
    ],
)
def test_the_engine_by_itself_reaches_nothing(text: str, tmp_path: Path) -> None:
    frame = pa.table({"secret": [1]})  # a replacement scan of DuckDB would find it by its name
    assert len(frame) == 1
    batch = pa.record_batch({"km": [1]})
    with pytest.raises((UserFunctionError, RowsFailed)):
        Engine().run(text.format(folder=tmp_path), batch)
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_wants_more_memory_than_there_is_fails_alone() -> None:
    query = Query("select n, len(range(n)) as count from segments")
    batch = pa.record_batch({"n": [10, 10_000_000_000, 20], "__row__": [0, 1, 2]})
    made, failed = query(batch)
    assert made.to_pydict() == {"__row__": [0, 2], "n": [10, 20], "count": [10, 20]}
    assert failed.column("__row__").to_pylist() == [1]


def test_functions_that_a_new_duckdb_allows_are_looked_at() -> None:
    """The file has the functions that somebody has looked at. One more needs a look: does its
    result depend on its arguments only?"""
    engine = Engine()
    grammar = Grammar(engine.functions(), "segments")

    def allowed(name: str) -> bool:
        node = {"function_name": name, "order_bys": {}, "arguments": [{}, {}]}
        try:
            grammar._check_function(node, in_where=False)
        except Refused:
            return False
        return True

    found = {name for name in engine.functions() if allowed(name)}
    assert found - set(ALLOWED.read_text("utf-8").split()) == set()
