"""A query from its request to its reply, whatever its inputs are.

Over bounded inputs it is one action for the whole job, or for what is between two Spark stages of
the user, because Spark computes a frame anew for each, and a task that ran twice would call the
user's functions twice. So what a fragment reports, such as tokens of what it has staged, passes
through the fragments behind it, and comes out at the end beside theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from onyx.errors import UserError
from onyx.plugins.protocol import SealProgress
from onyx.spark.child.request import StageRequest
from onyx.spark.driver.request import QueryProgress, QueryReply, QueryRequest
from onyx.spark.session.masters import is_connect, is_local
from onyx.spark.session.progress import reported
from onyx.spark.session.shipping import ship_modules
from onyx.spark_query.chain import (
    buckets_of,
    chain,
    chain_with_middles,
    numbers_of,
    outputs_of,
    total_of,
)
from onyx.spark_query.failure import found_in, is_disordered
from onyx.spark_query.middle.stages import MiddleStages, run_beside
from onyx.spark_query.programs import Query, QueryConfig
from onyx.spark_query.rows import Row
from onyx.spark_query.session import opened, ui_url
from onyx.spark_query.stream import Publish, Rest, Say, streaming

Open = Callable[[QueryRequest], Any]


def answer(
    request: QueryRequest,
    say: Say,
    open_spark: Open = opened,
    publish: Publish | None = None,
    run_middle: RunMiddle = run_beside,
    rest: Rest = time.sleep,
) -> QueryReply:
    """Run the query; the reply reports any failure.

    Args:
        publish: takes the micro-batches of a query over inputs without end.
        run_middle: runs the Spark stages in the middle.
        rest: waits for segments of inputs without end.
    """
    say(QueryProgress("starting"))
    try:
        query = Query(QueryConfig(request, (), 1))
        require_shared_disk(query)
        partitions = _partitions(query)
        spark = open_spark(request)
        send_modules(spark, request)
        _say_how_far(say, spark, SealProgress())
        if query.plan.unbounded:
            assert publish is not None, "somebody publishes micro-batches"
            counts = streaming(spark, request, partitions, publish, say, ui_url(spark), rest)
            return QueryReply(None, {}, counts)
        with reported(request.master, spark, partial(_say_how_far, say, spark)):
            rows = combined_if_possible(spark, request, partitions, run_middle)
    except Exception as error:
        return QueryReply(found_in(error))
    say(QueryProgress("done"))
    return QueryReply(None, outputs_of(query, rows), total_of(rows))


def _partitions(query: Query) -> tuple[tuple[str, str], ...]:
    """The partitions of all inputs, with their tasks."""
    found: list[tuple[str, str]] = []
    for entry in query.job.catalog:
        if entry.type == "input":
            plugin = query.plugins.input(entry.name)
            found += ((entry.name, name) for name in plugin.partitions())
            plugin.close()
    return tuple(found)


def _say_how_far(say: Say, spark: Any, progress: SealProgress) -> None:
    say(QueryProgress("running", ui_url=ui_url(spark), spark=progress))


def send_modules(spark: Any, request: QueryRequest) -> None:
    """Send the modules of the job to where Spark's Python runs, if that is elsewhere."""
    if not is_local(request.master):
        ship_modules(spark, request.modules, Path(request.scratch))


def require_shared_disk(query: Query) -> None:
    """The manifest may name no master; then that of the worker counts, which is known here.

    Raises:
        UserError: the master is a Spark Connect server, and the worker prints what fragments spool.
    """
    master = query.request.master
    if not is_connect(master):
        return
    for output in query.plan.outputs:
        if output.how == "spooled":
            raise UserError(
                f"task {output.task}: this worker prints the rows of stdout, and does not see "
                f"those of executors of {master}; set spec.spark.master to local[N] or "
                "spark://host:port, or take the plugin files"
            )


RunMiddle = Callable[[Any, QueryRequest, StageRequest], None]
"""Runs a Spark stage in the Spark of a query."""


def combined_if_possible(
    spark: Any,
    request: QueryRequest,
    partitions: tuple[tuple[str, str], ...],
    run_middle: RunMiddle,
) -> list[Row]:
    """Have Spark run all fragments, with states folded before the shuffle unless a segment stands
    against it; what the fragments report. Raises like `run_bounded`."""
    try:
        return run_bounded(spark, request, partitions, run_middle)
    except Exception as error:
        if not (request.combine and is_disordered(error)):
            raise
    anew = msgspec.structs.replace(request, combine=False)
    return run_bounded(spark, anew, partitions, run_middle)


def run_bounded(
    spark: Any,
    request: QueryRequest,
    partitions: tuple[tuple[str, str], ...],
    run_middle: RunMiddle,
) -> list[Row]:
    """Have Spark run all fragments; what they report.

    Raises:
        TaskFailed: as text within an exception of Spark, or of a Spark stage in the middle.
    """
    query = Query(QueryConfig(request, partitions, buckets_of(spark, request, len(partitions))))
    config = query.config.text()
    frame = numbers_of(spark, len(partitions))
    if not query.plan.middles:
        return chain(frame, config, query.config.buckets, len(query.plan.fragments))
    middles = MiddleStages(query, partial(run_middle, spark, request))
    middles.begin()
    return chain_with_middles(spark, frame, config, query, middles)
