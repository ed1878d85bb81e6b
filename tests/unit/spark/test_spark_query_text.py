"""What the text of a query of Spark may not say."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.support.jobs.plugin_context import plugin_context

from onyx.errors import UserError
from onyx.plugins.protocol import PluginContext
from onyx.spark.compiler.refusals import why_refused
from onyx.spark.middle.options import MiddleOptions
from onyx.spark.middle.request import request_of


@pytest.mark.parametrize(
    "text",
    [
        "select * from segments",
        "  -- what it does\n SELECT 1",
        "/* a\n b */ with a as (select 1) select * from a",
        "(select 1) union (select 2)",
        "from segments select n",
        "select a.n from a join b using (k) join c using(k)",
        "select transform(tags, t -> upper(t)) as tags from segments",
        "values (1)",
    ],
)
def test_queries_are_for_spark_to_look_at(text: str) -> None:
    assert why_refused(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no query"),
        ("-- nothing", "has no query"),
        ("drop table t", "begins with drop, and must be one query"),
        ("insert into t select 1", "begins with insert"),
        ("set x = 1", "begins with set"),
        ("add jar 'x.jar'", "begins with add"),
        ("/* select */ create table t (n int)", "begins with create"),
        ("map n using 'cat' from segments", "begins with map"),
        ("select reflect('java.lang.System', 'getenv', 'HOME') as x", "has reflect, which calls"),
        ("select `Reflect`('java.lang.System', 'getenv') as x", "has Reflect, which calls code"),
        ("select system.builtin.java_method('a', 'b') as x", "has java_method"),
        ("select try_reflect('a', 'b') as x", "has try_reflect"),
        ("select identifier('ref' || 'lect')('a', 'b') as x", "has identifier"),
        ("select transform(n) using 'cat' as m from segments", "has using, which runs a program"),
        ("select transform(n) USING/**/'cat' from segments", "has using, which runs a program"),
        ('select transform(n) using "cat" as m from segments', "has using"),
    ],
)
def test_what_runs_code_or_changes_something_is_refused(text: str, why: str) -> None:
    assert why_refused(text).startswith(why)


def context_of(text: str, *upstream: str) -> PluginContext:
    context = plugin_context({"path": "bundles"})
    return replace(context, spark_stage="sparkSql", spark_sql=text, upstream=upstream)


def test_a_worker_refuses_it_too() -> None:
    context = context_of("drop table t", "read")
    with pytest.raises(UserError, match="sparkSql begins with drop"):
        request_of(context, MiddleOptions(path="bundles"))


def test_a_worker_asks_for_a_query_over_views_of_the_tasks_upstream() -> None:
    context = context_of("select * from read_in join sum using (k)", "read-in", "sum")
    request = request_of(context, MiddleOptions(path="bundles", stage_params={"least": 3}))
    assert request.query == "select * from read_in join sum using (k)"
    assert [frame.name for frame in request.frames] == ["read_in", "sum"]
    assert request.params == {"least": 3}
