"""A query from its request to its reply, whatever its inputs are."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from onyx.plugins.protocol import SealProgress
from onyx.spark.driver.request import QueryProgress, QueryReply, QueryRequest
from onyx.spark.session.progress import reported
from onyx.spark_query.bounded import RunMiddle, combined_if_possible
from onyx.spark_query.chain import outputs_of, total_of
from onyx.spark_query.config import QueryConfig
from onyx.spark_query.elsewhere import require_shared_disk, send_modules
from onyx.spark_query.failure import found_in
from onyx.spark_query.middle.beside import run_beside
from onyx.spark_query.programs import Query
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
