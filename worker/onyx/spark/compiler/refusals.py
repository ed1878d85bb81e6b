"""What a job says that Spark cannot do, each with its place in the manifest; all at once.

Refused before anything starts, rather than left out in silence: a user who moves a job from peers
to Spark must get the same rows or a reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from onyx.errors import Problem
from onyx.model.job import CatalogEntry, Job
from onyx.model.report import at

READ = ("files", "generator", "sequence")
"""Inputs that have an end."""
WRITTEN = ("blackhole", "files", "function", "spark", "stdout")
"""Outputs whose segments can be staged, or need not be."""
PEERS = "run the job with `engine: peers`"


def refusals(job: Job) -> tuple[Problem, ...]:
    """Everything in the job that Spark cannot do; empty when it can run it."""
    return (
        *_catalog(job),
        *_lifecycles(job),
        *_triggers(job),
        *_upgrade(job),
    )


def _catalog(job: Job) -> Iterator[Problem]:
    for index, entry in enumerate(job.catalog):
        path = at("spec.catalog", index)
        if entry.spark_stage is not None:
            yield Problem(
                at(path, "sparkStage"),
                "engine spark runs no stage in the middle of its own query",
                f"end the job with an output `spark`, or {PEERS}",
            )
        if entry.type == "input":
            yield from _input(entry, path)
        elif entry.type == "output" and entry.plugin not in WRITTEN:
            yield Problem(
                at(path, "plugin"),
                f"engine spark does not write with {entry.plugin!r}, whose segments cannot wait "
                "for the end of the query",
                f"use one of {', '.join(WRITTEN)}, or {PEERS}",
            )


def _input(entry: CatalogEntry, path: str) -> Iterator[Problem]:
    if entry.plugin not in READ:
        what = "may have no end" if ":" in (entry.plugin or "") else "has no end"
        yield Problem(
            at(path, "plugin"),
            f"input {entry.plugin!r} {what}: engine spark runs bounded inputs",
            f"use one of {', '.join(READ)}, or {PEERS}",
        )
    elif entry.plugin == "generator" and entry.options.get("segments") is None:
        yield Problem(
            at(path, "options"),
            "a generator without `segments` has no end: engine spark runs bounded inputs",
            f"add segments, or {PEERS}",
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


def _upgrade(job: Job) -> Iterator[Problem]:
    if job.upgrade is not None:
        yield Problem(
            "spec.upgrade",
            "engine spark takes over no state of another job: a query begins with its inputs",
            f"leave it out, or {PEERS}",
        )
