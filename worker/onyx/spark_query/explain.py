"""Spark's physical plan of the query of a whole job, over inputs that are not looked at.

What Spark sees of a job is the chain of its fragments, each a function of Python, and the shuffles
between them. So the plan is that of each run, but for the number of partitions of the inputs and
for the buckets, which follow them and the cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from onyx.model.canonical import to_mapping
from onyx.model.job import Job
from onyx.spark.compiler.compile import compile_job
from onyx.spark.driver.request import QueryRequest
from onyx.spark.explain import shown
from onyx.spark_query.chain import buckets_of, numbers_of, through
from onyx.spark_query.programs import QueryConfig
from onyx.spark_query.rows import DDL, REPORTED, SCHEMA


def explained_query(
    job: Job, spark: Any, spark_conf: Mapping[str, str], folder: Path
) -> Iterator[str]:
    """What Spark would do, a text for each action: one, and one more behind each stage in the
    middle.

    Args:
        spark: the session.
        spark_conf: what the job sets.
        folder: for rows that are none.

    Raises:
        ManifestError: Spark cannot run the job.
    """
    plan = compile_job(job)
    inputs = sum(each.type == "input" for each in job.catalog)
    request = QueryRequest(
        to_mapping(job), job.name, (), "plan", "plan", str(folder), spark_conf=dict(spark_conf)
    )
    buckets = buckets_of(spark, request, inputs)
    config = QueryConfig(request, (), buckets).text()
    when = "each micro-batch of job" if plan.unbounded else "job"
    for piece in plan.pieces:
        frame = through(_frame(spark, piece, inputs, folder), config, buckets, piece)
        fragments = f"fragments {piece.start} to {piece.stop - 1}"
        if len(piece) == 1:
            fragments = f"fragment {piece.start}"
        yield f"{when} {job.name}: {fragments}, a MapInArrow each\n{shown(frame)}"


def _frame(spark: Any, piece: range, inputs: int, folder: Path) -> Any:
    """What the first fragment of a piece gets."""
    if not piece.start:
        return numbers_of(spark, inputs)
    path = folder / f"rows-{piece.start}.parquet"
    pq.write_table(SCHEMA.empty_table(), path)
    return spark.read.schema(DDL).parquet(str(path)).where(f"fragment > {REPORTED}")
