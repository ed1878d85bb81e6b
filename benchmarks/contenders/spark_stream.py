"""Workloads as Spark structured streams over everything that is there now.

    python spark_stream.py segments|words|windows dicts|columns FOLDER SCRATCH

From JSON Lines and text, or with `columns` from Parquet. Workload a calls the Python functions that
all call, as UDFs or through `mapInArrow`; b and c need none, and a user of Spark would write none.

The query runs twice and the second run counts: a JVM that has compiled its code. Cold, its start-up
varies by more than the work costs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import psutil
from bench_columns import inc_even
from bench_tasks import even, inc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

BATCH = 10_000
LATENESS = "10 minutes"

Stream = tuple[Any, str, str]
"""The frame, its output mode, and the column that is added up."""


def session_of(scratch: str) -> SparkSession:
    """Spark on one core, with all its files in a folder."""
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .config("spark.local.dir", f"{scratch}/local")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def main(workload: str, kind: str, folder: str, scratch: str) -> None:
    session = session_of(scratch)
    columns = kind == "columns"
    makers: dict[str, Callable[[Any, str, bool], Stream]] = {
        "segments": segments,
        "words": words,
        "windows": windows,
    }
    made = makers[workload](session, folder, columns)
    run(made, f"{scratch}/warm")
    before = tree_cpu_s()
    answer = run(made, f"{scratch}/measured")
    print("CPU", tree_cpu_s() - before)
    print("ANSWER", *answer, flush=True)
    session.stop()


def read(session: Any, folder: str, columns: bool, schema: str) -> Any:
    reader = session.readStream.schema(schema)
    if columns:
        return reader.parquet(folder, pathGlobFilter="*.parquet")
    return reader.json(folder, pathGlobFilter="*.jsonl")


def segments(session: Any, folder: str, columns: bool) -> Stream:
    schema = "id LONG, name STRING, n LONG"
    rows = read(session, folder, columns, schema)
    if columns:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)
        return rows.mapInArrow(lambda batches: map(inc_even, batches), schema), "append", "n"
    add_one = F.udf(lambda n: inc({"n": n})["n"], "long")
    is_even = F.udf(lambda n: even({"n": n}), "boolean")
    return rows.withColumn("n", add_one("n")).filter(is_even("n")), "append", "n"


def words(session: Any, folder: str, columns: bool) -> Stream:
    if columns:
        lines = session.readStream.schema("line STRING").parquet(folder)
    else:
        text = session.readStream.text(folder, pathGlobFilter="part-*")
        lines = text.withColumnRenamed("value", "line")
    each = lines.select(F.explode(F.split("line", " ")).alias("word"))
    return each.groupBy("word").count(), "complete", "count"


def windows(session: Any, folder: str, columns: bool) -> Stream:
    """Each sum as it is at the end of a micro-batch: those of the last minutes wait for nothing."""
    rows = read(session, folder, columns, "key STRING, ts LONG, v LONG")
    timed = rows.withColumn("at", F.timestamp_millis("ts")).withWatermark("at", LATENESS)
    return (
        timed.groupBy(F.window("at", "1 minute"), "key").agg(F.sum("v").alias("v")),
        "update",
        "v",
    )


def run(stream: Stream, checkpoint: str) -> list[int]:
    """Run the query to the end of the data; count and sum."""
    frame, mode, summed = stream
    answer = [0, 0]

    def sink(batch: Any, _: int) -> None:
        count, total = batch.agg(F.count("*"), F.sum(summed)).first()
        answer[0] += count
        answer[1] += total or 0

    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    writer.outputMode(mode).trigger(availableNow=True).start().awaitTermination()
    return answer


def tree_cpu_s() -> float:
    """User and system time of this process and all below it, those that have ended included."""
    root = psutil.Process()
    times = [each.cpu_times() for each in [root, *root.children(recursive=True)]]
    return sum(
        each.user + each.system + each.children_user + each.children_system for each in times
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
