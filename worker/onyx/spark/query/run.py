"""A query over bounded inputs: one chain of frames, one action.

One action for the whole job, because Spark computes a frame anew for each, and a task that ran
twice would call the user's functions twice. So what a stage reports, such as tokens of what it has
staged, passes through the stages behind it, and comes out at the end beside theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from onyx.plugins.protocol import SealProgress
from onyx.spark.query.failure import found_in, is_disordered
from onyx.spark.query.programs import Query, StageConfig
from onyx.spark.query.request import (
    OutputResult,
    QueryProgress,
    QueryReply,
    QueryRequest,
    TaskCounts,
)
from onyx.spark.query.rows import DDL, ORDER, Row
from onyx.spark.query.stage import run_stage
from onyx.spark.query.tree import total
from onyx.spark.session.masters import is_connect
from onyx.spark.session.opening import open_session
from onyx.spark.session.progress import reported

ROWS_A_BATCH = "64"
"""Rows are whole batches of segments, so few go to Python at once."""
TASKS_MAX = 256
"""Tasks of Spark in stage 0; more partitions than that share them."""
PLACES_MAX = 128
"""As many as there are key groups."""

Say = Callable[[QueryProgress], None]
Open = Callable[[QueryRequest], Any]


def opened(request: QueryRequest) -> Any:
    """A session of Spark for the query.

    Raises:
        SettingsError: PySpark is not installed.
        UserError: a setting cannot be set.
        Unavailable: Spark does not start, or cannot be reached.
    """
    name = f"onyx: {request.job_id}"
    extra = dict(request.spark_conf)
    if not is_connect(request.master):
        extra = {"spark.sql.execution.arrow.maxRecordsPerBatch": ROWS_A_BATCH} | extra
    return open_session(request.master, name, Path(request.scratch), extra)


def answer(request: QueryRequest, say: Say, open_spark: Open = opened) -> QueryReply:
    """Run the query; the reply reports any failure."""
    say(QueryProgress("starting"))
    try:
        query = Query(StageConfig(request, (), 1))
        partitions = _partitions(query)
        spark = open_spark(request)
        _say_how_far(say, spark, SealProgress())
        with reported(request.master, spark, partial(_say_how_far, say, spark)):
            rows = _combined_if_possible(spark, request, partitions, len(query.plan.stages))
    except Exception as error:
        return QueryReply(found_in(error))
    say(QueryProgress("done"))
    return _reply(query, rows)


def _combined_if_possible(
    spark: Any, request: QueryRequest, partitions: tuple[tuple[str, str], ...], stages: int
) -> list[Row]:
    try:
        return run(spark, request, partitions, stages)
    except Exception as error:
        if not (request.combine and is_disordered(error)):
            raise
    anew = msgspec.structs.replace(request, combine=False)
    return run(spark, anew, partitions, stages)


def run(
    spark: Any, request: QueryRequest, partitions: tuple[tuple[str, str], ...], stages: int
) -> list[Row]:
    """Have Spark run all stages; what they report.

    Raises:
        TaskFailed: as text within an exception of Spark.
    """
    places = min(int(spark.conf.get("spark.sql.shuffle.partitions")), PLACES_MAX)
    config = msgspec.json.encode(StageConfig(request, partitions, places)).decode()
    frame = spark.range(0, len(partitions), 1, min(len(partitions), TASKS_MAX))
    frame = frame.mapInArrow(partial(run_stage, config, 0), DDL)
    for number in range(1, stages):
        frame = frame.repartitionById(places, "place").sortWithinPartitions(*ORDER)
        frame = frame.mapInArrow(partial(run_stage, config, number), DDL)
    return [Row(*row) for row in frame.collect()]


def _partitions(query: Query) -> tuple[tuple[str, str], ...]:
    """Of all inputs, with their tasks."""
    found: list[tuple[str, str]] = []
    for entry in query.job.catalog:
        if entry.type == "input":
            plugin = query.input(entry.name)
            found += ((entry.name, name) for name in plugin.partitions())
            plugin.close()
    return tuple(found)


def _reply(query: Query, rows: list[Row]) -> QueryReply:
    tokens: dict[str, list[dict[str, Any]]] = {}
    spools: dict[str, list[str]] = {}
    counts: list[dict[str, TaskCounts]] = []
    for row in rows:
        if row.kind == "token":
            tokens.setdefault(row.task, []).append(msgspec.json.decode(row.payload))
        elif row.kind == "spool":
            spools.setdefault(row.task, []).append(bytes(row.payload).decode())
        elif row.kind == "counts":
            counts.append(msgspec.json.decode(row.payload, type=dict[str, TaskCounts]))
    outputs = {
        each.task: OutputResult(
            tuple(tokens.get(each.task, ())), tuple(sorted(spools.get(each.task, ())))
        )
        for each in query.plan.outputs
        if each.how in ("staged", "spooled")
    }
    return QueryReply(None, outputs, total(counts))


def _say_how_far(say: Say, spark: Any, progress: SealProgress) -> None:
    say(QueryProgress("running", ui_url=_ui_url(spark), spark=progress))


def _ui_url(spark: Any) -> str | None:
    try:
        url = spark.sparkContext.uiWebUrl
    except Exception:  # a Connect session has no context
        return None
    return None if url is None else str(url)
