"""Queries without a JVM: frames that call the same functions on the same rows as Spark does.

What Spark does between two stages is to move rows to partitions and sort them there. So nearly all
of a query can be tested in milliseconds, and with jobs made by hypothesis; that real Spark gives
the same is for the integration tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from onyx.model.canonical import to_mapping
from onyx.model.job import Job
from onyx.spark.driver.outputs import Outputs
from onyx.spark.query.programs import Query, StageConfig
from onyx.spark.query.request import QueryReply, QueryRequest
from onyx.spark.query.rows import SCHEMA, rows_of
from onyx.spark.query.run import answer

Rows = list[dict[str, Any]]
_attempts = itertools.count()


class Frame:
    """A frame: rows in partitions."""

    def __init__(self, partitions: list[Rows]) -> None:
        self.partitions = partitions

    def mapInArrow(self, function: Callable[..., Any], schema: str) -> Frame:
        def batches(rows: Rows) -> Iterator[pa.RecordBatch]:
            for row in rows:
                yield pa.RecordBatch.from_pylist([row], SCHEMA if "stage" in row else None)

        return Frame(
            [
                [row._asdict() for batch in function(batches(rows)) for row in rows_of(batch)]
                for rows in self.partitions
            ]
        )

    def repartitionById(self, count: int, key: str) -> Frame:
        made: list[Rows] = [[] for _ in range(count)]
        for rows in self.partitions:
            for row in rows:
                made[row[key] % count].append(row)
        return Frame(made)

    def sortWithinPartitions(self, *keys: str) -> Frame:
        return Frame(
            [sorted(rows, key=lambda row: [row[key] for key in keys]) for rows in self.partitions]
        )

    def collect(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for rows in self.partitions for row in rows]


class Frames:
    """In the place of a session."""

    def __init__(self, places: int = 3) -> None:
        self._places = places
        self.conf = self.sparkContext = self

    def setJobGroup(self, group: str, description: str) -> None:
        """Nobody asks how far it is."""

    def get(self, name: str) -> str:
        assert name == "spark.sql.shuffle.partitions"
        return str(self._places)

    def range(self, start: int, end: int, step: int, count: int) -> Frame:
        rows = [{"id": number} for number in range(start, end, step)]
        return Frame([rows[n::count] for n in range(count)])


def request_of(job: Job, folder: Path, modules: tuple[str, ...], **more: Any) -> QueryRequest:
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return QueryRequest(
        manifest=to_mapping(job),
        job_id=f"{job.name}-1",
        modules=modules,
        incarnation="group-1",
        attempt=f"a{next(_attempts)}",
        scratch=str(scratch),
        data_dir=str(folder),
        **more,
    )


def run_query(request: QueryRequest, spark: Any = None) -> QueryReply:
    return answer(request, lambda line: None, lambda _: spark or Frames())


def publish_all(request: QueryRequest, reply: QueryReply) -> None:
    """As the driver of a job does."""
    query = Query(StageConfig(request, (), 1))
    outputs = Outputs({task: partial(query.output, task) for task in reply.outputs}, lambda: True)
    outputs.write_spools(reply.outputs)
    outputs.publish(request.attempt, reply.outputs)
