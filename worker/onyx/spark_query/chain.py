"""The chain of frames that is a query: one action for all fragments, and what its rows report.

Spark stages of the user in the middle cut it into several (`spark_query.middle.stages`). Rows
between fragments that Spark need not compute again are written to a folder that all processes of
the query see, and read from there (`keep_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from onyx.spark.driver.request import OutputResult, QueryRequest, TaskCounts
from onyx.spark.objects.messages import ObjectTarget
from onyx.spark.objects.reading import fetched
from onyx.spark.objects.writing import UploadOrder, uploaded_frame
from onyx.spark.session.masters import is_connect
from onyx.spark_query.counting import total
from onyx.spark_query.fragment import run_fragment
from onyx.spark_query.middle.stages import MiddleStages
from onyx.spark_query.programs import Query
from onyx.spark_query.rows import DDL, ORDER, REPORTED, SCHEMA, Row
from onyx.storage.interface import Location

TASKS_MAX = 256
"""Tasks of Spark in fragment 0; more partitions than that share them."""
BUCKETS_MAX = 128
"""The number of buckets: as many as there are key groups."""
PARTITIONS = "spark.sql.shuffle.partitions"
BUCKETS_MIN = 8
BUCKETS_A_CORE = 2
"""Each bucket is a task of Spark behind each shuffle, and in each micro-batch, so the 200 that
Spark takes would cost more than the work. Of micro-batches the number is for good, so there is room
for more cores."""
BUCKETS_A_PARTITION = 8
"""A partition of an input is read by one task, which does not feed more than so many others: few
files on a large cluster need few buckets."""


def buckets_of(spark: Any, request: QueryRequest, partitions: int = 0) -> int:
    """How many shares the groups of a task are in: as the job says, if it does; else by the cores
    that there are, and by the data, of which the partitions of inputs tell how much there is.

    Args:
        partitions: how many all inputs have; 0: that may change.
    """
    if PARTITIONS in request.spark_conf:
        return min(int(spark.conf.get(PARTITIONS)), BUCKETS_MAX)
    many = BUCKETS_A_CORE * _cores(spark, request.master)
    if partitions:
        many = max(min(many, BUCKETS_A_PARTITION * partitions), partitions)
    return min(max(BUCKETS_MIN, many), BUCKETS_MAX)


def _cores(spark: Any, master: str) -> int:
    """How many tasks Spark has for what does not say it: as many as its executors have cores."""
    if not is_connect(master):
        return int(spark.sparkContext.defaultParallelism)
    rows = spark.range(BUCKETS_MAX).selectExpr("spark_partition_id()").collect()
    return len({row[0] for row in rows})


def touch(spark: Any) -> None:
    """Ask Spark something small, so that it knows of us and we know of its end.

    Raises:
        Exception: it is gone, or does not know the session.
    """
    spark.conf.get(PARTITIONS)


def numbers_of(spark: Any, count: int) -> Any:
    """What fragment 0 is asked: the numbers of all partitions of the inputs."""
    return spark.range(0, count, 1, min(count, TASKS_MAX))


def chain(frame: Any, config: str, buckets: int, fragments: int, reached: str = "") -> list[Row]:
    """Have Spark run all fragments over a frame of what fragment 0 is asked; what they report.

    Args:
        reached: of a micro-batch, what was committed before (`run_fragment`).

    Raises:
        TaskFailed: as text within an exception of Spark.
    """
    return _rows(through(frame, config, buckets, range(fragments), reached))


def chain_with_middles(
    spark: Any, frame: Any, config: str, query: Query, middles: MiddleStages
) -> list[Row]:
    """The chain of a query with Spark stages of the user: what is between two of them is an action.

    Raises:
        TaskFailed: as text within an exception of Spark, or of a stage.
        OnyxError: Spark has failed.
    """
    reported: list[Row] = []
    for piece in query.plan.pieces:
        frame = through(frame, config, query.config.buckets, piece)
        if piece.stop == len(query.plan.fragments):
            return reported + _rows(frame)
        made = keep_rows(spark, frame, middles.rows_folder(piece.stop))
        reported += _rows(made.where(f"fragment = {REPORTED}"))
        results = spark.createDataFrame(middles.results(piece.stop, reported), DDL)
        frame = made.where(f"fragment > {REPORTED}").union(results)
    raise AssertionError("the last piece has the last fragment")


def through(frame: Any, config: str, buckets: int, fragments: range, reached: str = "") -> Any:
    """The frame behind these fragments."""
    for number in fragments:
        if number:
            frame = frame.repartitionById(buckets, "bucket").sortWithinPartitions(*ORDER)
        fragment = partial(run_fragment, config, number, reached)
        fragment.__name__ = f"fragment_{number}"  # type: ignore[attr-defined]  # in Spark's plans
        frame = frame.mapInArrow(fragment, DDL)
    return frame


def _rows(frame: Any) -> list[Row]:
    return [Row(*row) for row in frame.collect()]


def outputs_of(query: Query, rows: Iterable[Row]) -> dict[str, OutputResult]:
    """What each output is to publish, by what fragments report."""
    tokens: dict[str, list[dict[str, Any]]] = {}
    spools: dict[str, list[str]] = {}
    for row in rows:
        if row.kind == "token":
            tokens.setdefault(row.task, []).append(msgspec.json.decode(row.payload))
        elif row.kind == "spool":
            spools.setdefault(row.task, []).append(bytes(row.payload).decode())
    return {
        each.task: OutputResult(
            tuple(tokens.get(each.task, ())), tuple(sorted(spools.get(each.task, ())))
        )
        for each in query.plan.outputs
        if each.how in ("staged", "spooled")
    }


def total_of(rows: Iterable[Row]) -> dict[str, TaskCounts]:
    """The counts that fragments report, together."""
    kind = dict[str, TaskCounts]
    return total(
        [msgspec.json.decode(row.payload, type=kind) for row in rows if row.kind == "counts"]
    )


ROWS_AT_ONCE = 64
"""A row is a whole batch of segments."""


def keep_rows(spark: Any, frame: Any, folder: Location) -> Any:
    """A frame of rows, evaluated now, and read from a folder from now on."""
    if folder.local is not None:
        frame.write.parquet(str(folder.local))
        return spark.read.schema(DDL).parquet(str(folder.local))
    staged = uploaded_frame(frame, UploadOrder(ObjectTarget(str(folder), "part")))
    urls = [folder.path_of(each.name) for each in staged]
    return fetched(spark, urls, SCHEMA, DDL, ROWS_AT_ONCE)
