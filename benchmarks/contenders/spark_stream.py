"""Workload a as a Spark structured stream with Python UDFs, everything that is there now.

The query runs twice and the second run counts: a JVM that has compiled its code. Cold, its start-up
varies by more than the work costs. `python spark_stream.py FOLDER SCRATCH`
"""

import sys

import psutil
from bench_tasks import even, inc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SCHEMA = "id LONG, name STRING, n LONG"


def main(folder, scratch):
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
    stream(session, folder, f"{scratch}/warm")
    before = tree_cpu_s()
    answer = stream(session, folder, f"{scratch}/measured")
    print("CPU", tree_cpu_s() - before)
    print("ANSWER", *answer, flush=True)
    session.stop()


def stream(session, folder, checkpoint):
    """Run the query to the end of the data; count and sum."""
    answer = [0, 0]
    add_one = F.udf(lambda n: inc({"n": n})["n"], "long")
    is_even = F.udf(lambda n: even({"n": n}), "boolean")

    def sink(batch, _):
        count, total = batch.agg(F.count("*"), F.sum("n")).first()
        answer[0] += count
        answer[1] += total or 0

    lines = session.readStream.schema(SCHEMA).json(folder, pathGlobFilter="*.jsonl")
    worked = lines.withColumn("n", add_one("n")).filter(is_even("n"))
    writer = worked.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    return answer


def tree_cpu_s():
    """User and system time of this process and all below it, those that have ended included."""
    root = psutil.Process()
    return sum(sum(each.cpu_times()[:4]) for each in [root, *root.children(recursive=True)])


if __name__ == "__main__":
    main(*sys.argv[1:])
