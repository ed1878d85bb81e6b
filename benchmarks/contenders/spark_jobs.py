"""Workload c on Spark, by hand or as a job: `python spark_jobs.py WAY JOB FOLDER SCRATCH`.

`native` is `groupBy` with `window` and a sum, written out as JSON; `job` is the query of a whole
job (`onyx.spark_query`), up to published parts. `native-stream` and `job-stream` are the same in
micro-batches, over inputs that say nothing of their end. `late-stream` keeps extents for late
segments. Each runs twice in one session, and the second run counts: a JVM that has compiled its
code, and Python workers that have imported theirs.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import yaml
from pyspark.sql import functions as F

from onyx.model.canonical import to_mapping
from onyx.model.parsing.job import parse_manifest
from onyx.rights import EVERYTHING
from onyx.spark.driver.outputs import Outputs
from onyx.spark.driver.request import QueryRequest
from onyx.spark_query.programs import Query, QueryConfig
from onyx.spark_query.run import answer
from onyx.spark_query.session import opened

SCHEMA = "key STRING, ts LONG, v LONG"
ROW = ("key as group", "unix_millis(minute.start) as lower", "state")
"""As `emit: rows` writes it."""
MASTER = "local[1]"
Values = Counter[tuple[str, int]]
"""What was written, by key and start of the window."""


def main(way: str, job: str, folder: str, scratch_folder: str) -> None:
    scratch = Path(scratch_folder)
    session = opened(request(job, folder, scratch, "session"))
    ways: dict[str, Callable[[Any, str, str, Path, str], Values]] = {
        "native": native,
        "job": whole_job,
        "native-stream": native_stream,
        "job-stream": partial(streamed_job, late=False),
        "late-stream": partial(streamed_job, late=True),
    }
    run = ways[way]
    run(session, job, folder, scratch, "warm")
    before = tree_cpu_s()
    values = run(session, job, folder, scratch, "measured")
    print("CPU", tree_cpu_s() - before)
    print("ANSWER", len(values), values.total(), flush=True)
    os._exit(0)


def native(session: Any, job: str, folder: str, scratch: Path, name: str) -> Values:
    columns = "columns" in job
    read = session.read.schema(SCHEMA)
    rows = read.parquet(folder) if columns else read.json(folder, pathGlobFilter="*.jsonl")
    minutes = rows.withColumn("at", F.timestamp_millis("ts")).groupBy(
        F.window("at", "1 minute").alias("minute"), "key"
    )
    sums = minutes.agg(F.sum("v").alias("state")).selectExpr(*ROW)
    target = scratch / name
    sums.write.json(str(target))
    return read_back(target, "part-*.json")


def native_stream(session: Any, job: str, folder: str, scratch: Path, name: str) -> Values:
    columns = "columns" in job
    read = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    rows = read.parquet(folder) if columns else read.json(folder, pathGlobFilter="*.jsonl")
    minutes = rows.withColumn("at", F.timestamp_millis("ts")).withWatermark("at", "1 second")
    sums = minutes.groupBy(F.window("at", "1 minute").alias("minute"), "key").agg(
        F.sum("v").alias("state")
    )
    found = sums.selectExpr(*ROW)
    target = scratch / name
    writer = found.writeStream.outputMode("update").trigger(availableNow=True)
    writer = writer.foreachBatch(lambda frame, n: frame.write.json(f"{target}/{n:03d}"))
    query = writer.option("checkpointLocation", f"{target}-checkpoint").start()
    query.awaitTermination()
    return read_back(target, "*/part-*.json", newest=True)


def streamed_job(
    session: Any, job: str, folder: str, scratch: Path, name: str, late: bool
) -> Values:
    asked = request(job, folder, scratch, name, endless=True, late=late)
    query = Query(QueryConfig(asked, (), 1))
    tasks = [each.task for each in query.plan.outputs]
    outputs = Outputs({task: partial(query.plugins.output, task) for task in tasks}, lambda: True)
    batches = []

    def publish(batch: Any) -> None:
        batches.append(batch.number)
        outputs.publish(name, batch.outputs, over=False)

    reply = answer(asked, lambda line: None, lambda _: session, publish)
    assert reply.failure is None, reply.failure
    print("micro-batches", len(batches), file=sys.stderr)
    return read_back(scratch / name, "part-*.jsonl")


def whole_job(session: Any, job: str, folder: str, scratch: Path, name: str) -> Values:
    published(session, request(job, folder, scratch, name))
    return read_back(scratch / name, "part-*.jsonl")


def published(session: Any, asked: QueryRequest) -> None:
    """Run a query, and publish what it has staged."""
    reply = answer(asked, lambda line: None, lambda _: session)
    assert reply.failure is None, reply.failure
    query = Query(QueryConfig(asked, (), 1))
    outputs = Outputs(
        {task: partial(query.plugins.output, task) for task in reply.outputs}, lambda: True
    )
    outputs.publish(asked.attempt, reply.outputs)


def request(
    job: str, folder: str, scratch: Path, name: str, endless: bool = False, late: bool = True
) -> QueryRequest:
    def change(manifest: dict[str, Any]) -> None:
        for entry in manifest["spec"]["catalog"]:
            if entry.get("plugin") == "files":
                read = entry["type"] == "input"
                entry["options"]["path"] = f"{folder}/part-*" if read else str(scratch / name)
                if read and endless:
                    entry["plugin"] = "bench_sums:growing_files"
        if not late:
            del manifest["spec"]["windows"][0]["allowedLateness"]

    path = Path(__file__).parents[1] / "jobs" / job
    return request_of(path, change, ("bench_sums",), scratch, name)


def request_of(
    path: Path,
    change: Callable[[dict[str, Any]], None],
    modules: tuple[str, ...],
    scratch: Path,
    name: str,
) -> QueryRequest:
    """A query of the job in a file; `change` says where its tasks read and write."""
    manifest = yaml.safe_load(path.read_text())
    change(manifest)
    spool = scratch / f"{name}-spool"
    spool.mkdir()
    parsed = parse_manifest(json.dumps(manifest).encode())
    return QueryRequest(
        manifest=to_mapping(parsed),
        job_id="bench",
        modules=modules,
        incarnation="bench",
        attempt=name,
        scratch=str(spool),
        state_location=str(scratch / f"{name}-state"),
        master=MASTER,
        rights=EVERYTHING,
        spark_conf={"spark.sql.shuffle.partitions": "1"},
    )


def read_back(folder: Path, pattern: str, newest: bool = False) -> Values:
    """Sums of what was written; or the newest values, where later ones replace those before."""
    values: Values = Counter()
    for path in sorted(folder.glob(pattern)):
        for line in path.read_text().splitlines():
            segment = json.loads(line)
            place = segment["group"], segment["lower"]
            values[place] = segment["state"] + (0 if newest else values[place])
    return values


def tree_cpu_s() -> float:
    """User and system time of this process and all below it, those that have ended included."""
    root = psutil.Process()
    return sum(sum(each.cpu_times()[:4]) for each in [root, *root.children(recursive=True)])


if __name__ == "__main__":
    main(*sys.argv[1:])
