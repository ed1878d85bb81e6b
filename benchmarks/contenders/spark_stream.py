"""Workload a as a Spark structured stream, over everything that is there now: with Python UDFs over
JSON Lines, or with `mapInArrow` over Parquet.

The query runs twice and the second run counts: a JVM that has compiled its code. Cold, its start-up
varies by more than the work costs. `python spark_stream.py FOLDER SCRATCH dicts|columns`
"""

import sys

import psutil
from bench_columns import inc_even
from bench_tasks import even, inc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SCHEMA = "id LONG, name STRING, n LONG"
BATCH = 10_000


def main(folder, scratch, kind):
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
    worked = {"dicts": with_udfs, "columns": with_record_batches}[kind](session, folder)
    stream(worked, f"{scratch}/warm")
    before = tree_cpu_s()
    answer = stream(worked, f"{scratch}/measured")
    print("CPU", tree_cpu_s() - before)
    print("ANSWER", *answer, flush=True)
    session.stop()


def with_udfs(session, folder):
    add_one = F.udf(lambda n: inc({"n": n})["n"], "long")
    is_even = F.udf(lambda n: even({"n": n}), "boolean")
    lines = session.readStream.schema(SCHEMA).json(folder, pathGlobFilter="*.jsonl")
    return lines.withColumn("n", add_one("n")).filter(is_even("n"))


def with_record_batches(session, folder):
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)
    rows = session.readStream.schema(SCHEMA).parquet(folder, pathGlobFilter="*.parquet")
    return rows.mapInArrow(lambda batches: map(inc_even, batches), SCHEMA)


def stream(worked, checkpoint):
    """Run the query to the end of the data; count and sum."""
    answer = [0, 0]

    def sink(batch, _):
        count, total = batch.agg(F.count("*"), F.sum("n")).first()
        answer[0] += count
        answer[1] += total or 0

    writer = worked.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    return answer


def tree_cpu_s():
    """User and system time of this process and all below it, those that have ended included."""
    root = psutil.Process()
    return sum(sum(each.cpu_times()[:4]) for each in [root, *root.children(recursive=True)])


if __name__ == "__main__":
    main(*sys.argv[1:])
