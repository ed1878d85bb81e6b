"""What is wrong with the SQL of a job, found before anything runs.

A text is parsed by the engine that will run it, and its functions are looked up there. Where a task
has a schema, its text is run on a batch without rows too, which finds wrong columns and types.
Without DuckDB nothing is known: a worker, which has it, looks again. Of a query of Spark is looked
at what it may not say; Spark parses it when it runs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from onyx.errors import OnyxError, Problem
from onyx.model.job import CatalogEntry, Job
from onyx.model.keys.predicate import expressions
from onyx.model.report import at
from onyx.spark.middle.query_text import why_refused


def texts(job: Job) -> Iterator[tuple[str, str]]:
    """(path in the manifest, text) for all SQL that is run on batches."""
    for index, entry in enumerate(job.catalog):
        if entry.sql is not None:
            yield at(at("spec.catalog", index), "sql"), entry.sql
    for index, condition in enumerate(job.flow_conditions):
        path = at(at("spec.flowConditions", index), "predicate")
        yield from expressions(condition.predicate, path)


def wrong_sql(job: Job) -> tuple[Problem, ...]:
    """Everything that is wrong with the SQL of a job, as far as it can be known here."""
    return (*_of_spark(job), *(_found(job) if _can_check() else ()))


def unchecked_sql(job: Job) -> tuple[Problem, ...]:
    """A warning for each text that nobody can look at here."""
    what, hint = "was not checked, because DuckDB is not here", "pip install duckdb"
    return () if _can_check() else tuple(Problem(path, what, hint) for path, _ in texts(job))


def _can_check() -> bool:
    return importlib.util.find_spec("duckdb") is not None


def _found(job: Job) -> Iterator[Problem]:
    if next(texts(job), None) is None:
        return  # DuckDB takes 0.1 s of CPU to import
    from onyx.sql.expression import Expression

    for index, entry in enumerate(job.catalog):
        if entry.sql is not None:
            yield from _problem(at(at("spec.catalog", index), "sql"), _of_task(entry))
    for index, condition in enumerate(job.flow_conditions):
        path = at(at("spec.flowConditions", index), "predicate")
        for where, text in expressions(condition.predicate, path):
            yield from _problem(where, partial(Expression, text))


def _of_spark(job: Job) -> Iterator[Problem]:
    for index, entry in enumerate(job.catalog):
        wrong = "" if entry.spark_sql is None else why_refused(entry.spark_sql)
        if wrong:
            yield Problem(at(at("spec.catalog", index), "sparkSql"), wrong)


def _of_task(entry: CatalogEntry) -> Callable[[], Any]:
    from onyx.flow.columns.schemas import arrow_schema
    from onyx.sql.batches import Query

    def look() -> None:
        query, schema = Query(str(entry.sql)), arrow_schema(entry)
        if schema is not None:
            query.check(schema)

    return look


def _problem(path: str, look: Callable[[], Any]) -> Iterator[Problem]:
    try:
        look()
    except OnyxError as error:
        yield Problem(path, str(error).removeprefix("sql "))
