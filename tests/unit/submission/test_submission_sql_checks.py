"""SQL of a job is looked at before the job is submitted, as far as that can be done there."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.jobs.yaml_jobs import manifest

from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.submission import job_checks
from onyx.submission.job_checks import unchecked_sql, wrong_sql

JOB = """
    workflow: [[read, work], [work, stage], [stage, write]]
    catalog:
      - {name: read, type: input, plugin: files, options: {path: in.jsonl}}
      - {name: work, type: function, sql: "SQL", schema: {km: float64, text: string}}
      - {name: stage, type: function, sparkSql: "SPARK", options: {path: bundles}}
      - {name: write, type: output, plugin: stdout}
    flowConditions:
      - {from: work, to: [stage], predicate: [and, [">", km, 1], [sql, "CONDITION"]]}
"""


def job(
    sql: str = "select * from segments",
    spark: str = "select * from segments",
    condition: str = "km > 1",
) -> Job:
    words = {"SQL": sql, "SPARK": spark, "CONDITION": condition}
    text = JOB
    for word, value in words.items():
        text = text.replace(f'"{word}"', f'"{value}"')
    return parse_mapping(manifest(text))


@pytest.mark.parametrize(
    ("given", "path", "why"),
    [
        ({"sql": "select sum(km) as s from segments"}, "catalog[1].sql", "has the aggregate sum"),
        ({"sql": "select kn + 1 as n from segments"}, "catalog[1].sql", "names the column kn"),
        ({"sql": "select km || [1] as n from segments"}, "catalog[1].sql", "Binder Error"),
        ({"sql": "attach 'x.db'"}, "catalog[1].sql", "is not a select"),
        ({"spark": "drop table t"}, "catalog[2].sparkSql", "begins with drop"),
        ({"condition": "sum(km) > 1"}, "flowConditions[0].predicate[2][1]", "has the aggregate"),
    ],
)
def test_what_is_wrong_with_a_text_is_told_with_its_key(
    given: dict[str, Any], path: str, why: str
) -> None:
    (problem,) = wrong_sql(job(**given))
    assert problem.path == f"spec.{path}"
    assert problem.message.startswith(why)


def test_texts_that_can_be_run_have_no_problems() -> None:
    assert wrong_sql(job("select *, km * 2 as far from segments where text like 'a%'")) == ()
    assert unchecked_sql(job()) == ()


def test_without_duckdb_texts_are_left_to_workers_and_the_user_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_checks, "is_here", lambda name: False)
    made = job("select sum(km) as s from segments", condition="sum(km) > 1")
    assert wrong_sql(made) == ()
    assert [each.path for each in unchecked_sql(made)] == [
        "spec.catalog[1].sql",
        "spec.flowConditions[0].predicate[2][1]",
    ]
