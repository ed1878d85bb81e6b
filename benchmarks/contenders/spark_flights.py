"""The flights job on Spark, by hand or from its manifest:
`python spark_flights.py native|job JOB FOLDER SCRATCH`.

`native` calls the same Python functions through `mapInArrow`, keeps the frame, and writes its
routes and the aggregation of the example's own stage with Spark's writers. `job` is the query of
the manifest (`onyx.spark_query`), up to published parts and the result of the stage. Each runs
twice in one session, and the second run counts.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from flights import stages, tasks
from onyx.spark.driver.request import QueryRequest
from onyx.spark_query.session import opened
from spark_jobs import MASTER, published, request_of, tree_cpu_s

ROUTES = ("bad", "cancelled", "late", "on-time")
LATE_MINUTES = 15
DERIVED = [
    *(f"{name} BIGINT" for name in tasks.INTEGERS),
    *(f"{name} STRING" for name in tasks.TEXTS),
    "delay BIGINT", "speed DOUBLE", "record MAP<STRING, STRING>", "error STRING",
]  # fmt: skip
COLUMNS = pa.schema(
    [
        *((name, pa.int64()) for name in tasks.INTEGERS),
        *((name, pa.string()) for name in tasks.TEXTS),
        ("delay", pa.int64()),
        ("speed", pa.float64()),
        ("record", pa.map_(pa.string(), pa.string())),
        ("error", pa.string()),
    ]
)


def main(way: str, job: str, data: str, scratch_folder: str) -> None:
    folder, scratch = Path(data), Path(scratch_folder)
    session = opened(asked(job, folder, scratch, "session"))
    if way == "native":  # rows, and not batches of segments
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
    run = {"native": native, "job": whole_job}[way]
    run(session, job, folder, scratch, "warm")
    before = tree_cpu_s()
    run(session, job, folder, scratch, "measured")
    print("CPU", tree_cpu_s() - before)
    print("ANSWER", *answer_of(scratch / "measured"), flush=True)
    os._exit(0)


def derived(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        made = []
        for record in batch.to_pylist():
            try:
                made.append(tasks.derive(tasks.parse(record)))
            except ValueError as error:
                made.append({"record": [*record.items()], "error": str(error)})
        yield pa.RecordBatch.from_pylist(made, COLUMNS)


def native(session: Any, job: str, folder: Path, scratch: Path, name: str) -> None:
    records = session.read.option("header", True).csv(str(folder), pathGlobFilter="*.csv")
    flights = records.mapInArrow(derived, ", ".join(DERIVED)).persist()
    good = flights.where("error IS NULL").drop("record", "error")
    flown = good.where("dep_time IS NOT NULL")
    late = F.coalesce(flown.delay >= LATE_MINUTES, F.lit(False))
    routes = {
        "bad": flights.where("error IS NOT NULL").select("record", "error"),
        "cancelled": good.where("dep_time IS NULL"),
        "late": flown.where(late),
        "on-time": flown.where(~late),
    }
    for route, frame in routes.items():
        target = str(scratch / name / route)
        frame.write.option("ignoreNullFields", "false").json(target)
    stages.delays(flown).write.parquet(str(scratch / name / "delays" / "result"))
    flights.unpersist()


def whole_job(session: Any, job: str, folder: Path, scratch: Path, name: str) -> None:
    published(session, asked(job, folder, scratch, name))


def asked(job: str, folder: Path, scratch: Path, name: str) -> QueryRequest:
    def change(manifest: dict[str, Any]) -> None:
        for entry in manifest["spec"]["catalog"]:
            options = entry.get("options", {})
            if entry["type"] == "input":
                options["path"] = f"{folder}/*.csv"
            elif entry["type"] == "output":
                options["path"] = str(scratch / name / entry["name"])
            if "master" in options:
                options["master"] = MASTER

    modules = ("flights.tasks", "flights.stages")
    made: QueryRequest = request_of(Path(job), change, modules, scratch, name)
    return made


def answer_of(folder: Path) -> tuple[int, int]:
    """How many segments and groups were written, and the sum of what is in them."""
    count = total = 0
    for route in ROUTES:
        for path in (folder / route).glob("part-*.json*"):
            for line in path.read_text().splitlines():
                segment = json.loads(line)
                count += 1
                total += int(segment.get("record", segment)["row"])
    groups: Counter[tuple[str, str, int]] = Counter()
    for path in (folder / "delays" / "result").glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            groups[row["carrier"], row["origin"], row["month"]] += row["delay_sum"] or 0
    return count + len(groups), total + groups.total()


if __name__ == "__main__":
    main(*sys.argv[1:])
