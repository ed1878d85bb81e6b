"""What is wrong with a job beyond what the information model says: the options of its plugins,
where Spark is to run it, and its SQL.

For everybody who takes jobs before any worker does: the command line, clients, the operator and its
webhook. Nothing is built and no code of a user is imported; a user's own plugin checks its options
itself, in a worker.

A text of SQL is parsed by the engine that will run it, and its functions are looked up there. Where
a task has a schema, its text is run on a batch without rows too, which finds wrong columns and
types. Without DuckDB nothing is known: a worker, which has it, looks again. Of a query of Spark is
looked at what it may not say; Spark parses it when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Any

from onyx.base.on_demand import is_here
from onyx.errors import OnyxError, Problem
from onyx.model.job import CatalogEntry, Job, Spark
from onyx.model.keys.predicate import expressions
from onyx.model.plugins import BY_TYPE, STAGE_IN_THE_MIDDLE, makes_one_result
from onyx.model.report import PROBLEMS_MAX, at, nearest, within
from onyx.model.workflow import parents
from onyx.plugins.options import check_options, options_of, own_options
from onyx.spark.compiler.refusals import refusals, why_refused
from onyx.spark.session.masters import SparkMaster, wrong_spark_master
from onyx.upgrade.plan import result_path


def wrong_options(job: Job) -> tuple[Problem, ...]:
    """Wrong options of plugins that come with Onyx, at most a hundred; empty: workers take all."""
    found = chain(_found(job), _shared_results(job), _of_spark(job))
    return tuple(islice(found, PROBLEMS_MAX))


def _found(job: Job) -> Iterator[Problem]:
    for index, entry in enumerate(job.catalog):
        plugin = BY_TYPE.get(entry.type, {}).get(entry.plugin or "")
        path = at(at(at("spec", "catalog"), index), "options")
        if entry.stage is not None:
            plugin = STAGE_IN_THE_MIDDLE[0]
            yield from _of_no_frame(job, entry, path)
        if plugin is None:
            continue
        _, problems = check_options(own_options(entry), options_of(plugin))
        for problem in problems:
            yield Problem(within(path, problem.path), problem.message, problem.hint)
        untracked = "at-most-once" in (job.guarantee, entry.guarantee) and job.engine != "spark"
        if plugin.name == "kafka" and untracked and "consumerGroup" in entry.options:
            what = "hears what is processed, which nobody knows under guarantee at-most-once"
            yield Problem(at(path, "consumerGroup"), what, "leave it out")


def _of_no_frame(job: Job, entry: CatalogEntry, path: str) -> Iterator[Problem]:
    """Schemas of tasks that do not send to the stage."""
    schemas = entry.options.get("schemas")
    upstream = parents(job.workflow)[entry.name]
    for task in schemas if isinstance(schemas, dict) else ():
        if task not in upstream:
            hint = nearest(str(task), upstream) or f"these are: {', '.join(upstream)}"
            yield Problem(at(at(path, "schemas"), str(task)), "is no task upstream", hint)


def _of_spark(job: Job) -> Iterator[Problem]:
    """Where Spark is to run the job or parts of it, and what it cannot run of it."""
    if job.engine == "spark":
        yield from refusals(job)
    spark = job.spark or Spark()
    master = None if spark.master is None else SparkMaster(spark.master, dict(spark.spark_conf))
    for problem in () if master is None else wrong_spark_master(master):
        yield Problem(f"spec.spark.{problem.path}", problem.message, problem.hint)


def _shared_results(job: Job) -> Iterator[Problem]:
    """Outputs with one path feed one stage, each as a frame. The second of two results at one path
    would be taken for the first, which is there."""
    frames: dict[tuple[PurePosixPath, Any], str] = {}
    stages: dict[PurePosixPath, str] = {}
    outputs = [
        (at(at(at("spec", "catalog"), index), "options"), entry, result_path(entry))
        for index, entry in enumerate(job.catalog)
        if makes_one_result(entry.type, entry.plugin) and "path" in entry.options
    ]
    nameless = {
        location: entry for _, entry, location in reversed(outputs) if "frame" not in entry.options
    }
    for where, entry, location in outputs:
        other = nameless.get(location, entry).name
        first = frames.setdefault((location, entry.options.get("frame")), entry.name)
        first = other if first == entry.name else first
        if first != entry.name:
            hint = "each result needs its own, and outputs of one stage a `frame` each"
            yield Problem(at(where, "path"), f"is that of task {first} too", hint)
        elif "stage" in entry.options and stages.setdefault(location, entry.name) != entry.name:
            what = f"is given, and task {stages[location]} with the same path has one too"
            yield Problem(at(where, "stage"), what, "one of them has it, the others are its frames")
    for where, entry, location in outputs:
        if "frame" in entry.options and location not in stages and location not in nameless:
            what = "is missing in all outputs with this path"
            yield Problem(at(where, "stage"), what, "one of them has it, the others are its frames")


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
    return (*_in_spark(job), *(_wrong_sql(job) if is_here("duckdb") else ()))


def unchecked_sql(job: Job) -> tuple[Problem, ...]:
    """A warning for each text that nobody can look at here."""
    what, hint = "was not checked, because DuckDB is not here", "pip install duckdb"
    return () if is_here("duckdb") else tuple(Problem(path, what, hint) for path, _ in texts(job))


def _wrong_sql(job: Job) -> Iterator[Problem]:
    if next(texts(job), None) is None:
        return  # DuckDB takes 0.1 s of CPU to import
    from onyx.sql.batches import Expression

    for index, entry in enumerate(job.catalog):
        if entry.sql is not None:
            yield from _problem(at(at("spec.catalog", index), "sql"), _of_task(entry))
    for index, condition in enumerate(job.flow_conditions):
        path = at(at("spec.flowConditions", index), "predicate")
        for where, text in expressions(condition.predicate, path):
            yield from _problem(where, partial(Expression, text))


def _in_spark(job: Job) -> Iterator[Problem]:
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
