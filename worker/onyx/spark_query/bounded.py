"""A query over bounded inputs: one chain of frames, one action.

One action for the whole job, or for what is between two Spark stages of the user, because Spark
computes a frame anew for each, and a task that ran twice would call the user's functions twice. So
what a fragment reports, such as tokens of what it has staged, passes through the fragments behind
it, and comes out at the end beside theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from onyx.spark.child.request import StageRequest
from onyx.spark.driver.request import QueryRequest
from onyx.spark_query.chain import buckets_of, chain, chain_with_middles, numbers_of
from onyx.spark_query.config import QueryConfig
from onyx.spark_query.failure import is_disordered
from onyx.spark_query.middle.stages import MiddleStages
from onyx.spark_query.programs import Query
from onyx.spark_query.rows import Row

RunMiddle = Callable[[Any, QueryRequest, StageRequest], None]
"""Runs a Spark stage in the Spark of a query."""


def combined_if_possible(
    spark: Any,
    request: QueryRequest,
    partitions: tuple[tuple[str, str], ...],
    run_middle: RunMiddle,
) -> list[Row]:
    """Have Spark run all fragments, with states folded before the shuffle unless a segment stands
    against it; what the fragments report. Raises like `run`."""
    try:
        return run(spark, request, partitions, run_middle)
    except Exception as error:
        if not (request.combine and is_disordered(error)):
            raise
    anew = msgspec.structs.replace(request, combine=False)
    return run(spark, anew, partitions, run_middle)


def run(
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
