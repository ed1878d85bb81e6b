"""What a job says that Spark cannot do, each with its key path in the manifest; all at once.

Refused before anything starts, rather than left out in silence: a user who moves a job from peers
to Spark must get the same rows or a reason.

The text of `sparkSql` is among it: it may not say what would let a manifest run code of its own.
Words are looked for in the whole text, literals and comments too: what is a literal depends on
Spark's settings, and a reader that saw it otherwise than Spark would be a way around.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from onyx.errors import Problem
from onyx.model.job import CatalogEntry, Job
from onyx.model.plugins import INPUTS, OUTPUTS, built_in, makes_one_result
from onyx.model.report import at
from onyx.model.workflow import is_unbounded
from onyx.spark.session.masters import OF_SESSIONS

READ = [row.name for row in INPUTS.values() if row.by_spark]
"""Inputs of ours that can be read; those of users can."""
WRITTEN = [row.name for row in OUTPUTS.values() if row.by_spark]
PEERS = "run the job with `engine: peers`"


def refusals(job: Job) -> tuple[Problem, ...]:
    """Everything in the job that Spark cannot do; empty when it can run it."""
    return (
        *_catalog(job),
        *_lifecycles(job),
        *(() if is_unbounded(job) else _triggers(job)),
        *(_without_end(job) if is_unbounded(job) else ()),
    )


def _without_end(job: Job) -> Iterator[Problem]:
    for index, entry in enumerate(job.catalog):
        if entry.stage is not None:
            yield Problem(
                at(at("spec.catalog", index), "sparkSql" if entry.spark_sql else "sparkStage"),
                "the stage runs over all that came, and inputs have no end",
                f"give the inputs an end, or {PEERS}",
            )
        if makes_one_result(entry.type, entry.plugin):
            yield Problem(
                at(at("spec.catalog", index), "plugin"),
                "a stage at an output runs when all input is processed, and inputs have no end",
                f"use files, or {PEERS}",
            )


def _catalog(job: Job) -> Iterator[Problem]:
    for index, entry in enumerate(job.catalog):
        path = at("spec.catalog", index)
        if entry.stage is not None:
            yield from _in_the_middle(entry, path)
        if entry.type in ("input", "table"):
            yield from _input(entry, path)
        elif entry.type == "output" and entry.plugin not in WRITTEN:
            yield Problem(
                at(path, "plugin"),
                f"engine spark does not write with {entry.plugin!r}, whose segments cannot wait "
                "for the end of the query",
                f"use one of {', '.join(WRITTEN)}, or {PEERS}",
            )


def _in_the_middle(entry: CatalogEntry, path: str) -> Iterator[Problem]:
    options = at(path, "options")
    for key in ("bundleSegments", "bundleSeconds"):
        if key in entry.options:
            yield Problem(
                at(options, key),
                "engine spark runs the stage once, over all that came, and rows of several bundles "
                "may be others",
                f"leave it out, which gives one bundle on peers too, or {PEERS}",
            )
    conf = entry.options.get("sparkConf")
    for key in conf if isinstance(conf, dict) else ():
        if not str(key).startswith(OF_SESSIONS):
            yield Problem(
                f"{options}.sparkConf.{key}",
                "is of a whole Spark, and engine spark runs the stage in that of its query",
                "set it in spec.spark.sparkConf",
            )


def _input(entry: CatalogEntry, path: str) -> Iterator[Problem]:
    row = built_in(entry.type, entry.plugin)
    if row is not None and not row.by_spark:
        yield Problem(
            at(path, "plugin"),
            f"engine spark does not read with {entry.plugin!r}",
            f"use one of {', '.join(READ)}, a plugin of your own, or {PEERS}",
        )


def _lifecycles(job: Job) -> Iterator[Problem]:
    for index, lifecycle in enumerate(job.lifecycles):
        yield Problem(
            at("spec.lifecycles", index),
            f"engine spark does not call {lifecycle.calls}: its hooks are about batches, "
            "acknowledgements and restarts of peers",
            f"leave it out, or {PEERS}",
        )


def _triggers(job: Job) -> Iterator[Problem]:
    for index, trigger in enumerate(job.triggers):
        if trigger.period is not None:
            yield Problem(
                at(at("spec.triggers", index), "period"),
                f"trigger {trigger.type} fires by the clock while segments come, and a query over "
                "bounded inputs has no such time",
                f"use a segment or watermark trigger, or {PEERS}",
            )


_FIRST = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/|\()*(\w*)", re.DOTALL)
_BEGIN = frozenset({"select", "with", "from", "values", "table"})
_CODE = re.compile(r"\b(try_reflect|reflect|java_method|identifier)\b", re.IGNORECASE)
_PROGRAM = re.compile(r"\busing\b(?!\s*\()", re.IGNORECASE)
_FORM = "must be one query: write `select ... from segments`"


def why_refused(text: str) -> str:
    """Why a text is not run by Spark; empty if Spark may look at it."""
    first = _FIRST.match(text)
    word = "" if first is None else first.group(1)
    if word.lower() not in _BEGIN:
        return f"{f'begins with {word}' if word else 'has no query'}, and {_FORM}"
    code = _CODE.search(text)
    if code:
        return f"has {code.group(1)}, which calls code by its name: write a sparkStage for it"
    if _PROGRAM.search(text):
        return "has using, which runs a program; a join is written `using (column)`"
    return ""
