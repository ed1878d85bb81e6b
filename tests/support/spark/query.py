"""Queries without a JVM: frames that call the same functions on the same rows as Spark does.

What Spark does between two fragments is to move rows to partitions and sort them there. So nearly
all of a query can be tested in milliseconds, and with jobs made by hypothesis; that real Spark
gives the same is for the integration tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
from tests.support.operators.ordered import watch_operators

from onyx.errors import UserFunctionError
from onyx.model.canonical import to_mapping
from onyx.model.job import Job
from onyx.rights import EVERYTHING
from onyx.spark.child.request import StageRequest
from onyx.spark.child.run_stage import named
from onyx.spark.driver.outputs import Outputs
from onyx.spark.driver.request import QueryBatch, QueryReply, QueryRequest
from onyx.spark.objects.messages import write_list
from onyx.spark.objects.reading import opened_parquet
from onyx.spark.objects.writing import UploadOrder, uploaded
from onyx.spark_query.folding import share_state
from onyx.spark_query.programs import Query, QueryConfig
from onyx.spark_query.rows import SCHEMA, Row, rows_of
from onyx.spark_query.run import answer
from onyx.spark_query.stream import Publish
from onyx.storage.objects.urls import is_url, parse_url

Rows = list[dict[str, Any]]
watch_operators(share_state)
_attempts = itertools.count()
_files: dict[str, Frame] = {}
"""Frames that were written, by their folders."""


class Frame:
    """A frame: rows in partitions. Each is worked on several times if there are `repeats`, and the
    last time counts, as where Spark runs a task again."""

    def __init__(
        self,
        partitions: list[Rows],
        anew: Callable[[], Frame] | None = None,
        repeats: int = 0,
    ) -> None:
        """`anew`: has what made the rows run again."""
        self.partitions = partitions
        self.anew = anew or (lambda: self)
        self._repeats = repeats

    def mapInArrow(self, function: Callable[..., Any], schema: str) -> Frame:
        def batches(rows: Rows) -> Iterator[pa.RecordBatch]:
            for row in rows:
                yield pa.RecordBatch.from_pylist([row], SCHEMA if "fragment" in row else None)

        def run(rows: Rows) -> Rows:
            return [row for batch in function(batches(rows)) for row in as_dicts(batch)]

        made = [[run(rows) for _ in range(1 + self._repeats)][-1] for rows in self.partitions]
        return Frame(made, lambda: self.mapInArrow(function, schema), self._repeats)

    @property
    def write(self) -> Frame:
        return self

    def parquet(self, folder: str) -> None:
        _files[folder] = self

    def where(self, condition: str) -> Frame:
        wanted = condition.replace(" = ", " == ")
        return Frame(
            [[row for row in rows if eval(wanted, {}, row)] for rows in self.partitions],
            repeats=self._repeats,
        )

    def union(self, other: Frame) -> Frame:
        return Frame([*self.partitions, *other.partitions], repeats=self._repeats)

    def repartitionById(self, count: int, key: str) -> Frame:
        made: list[Rows] = [[] for _ in range(count)]
        for rows in self.partitions:
            for row in rows:
                made[row[key] % count].append(row)
        return Frame(made, repeats=self._repeats)

    def sortWithinPartitions(self, *keys: str) -> Frame:
        return Frame(
            [sorted(rows, key=lambda row: [row[key] for key in keys]) for rows in self.partitions],
            repeats=self._repeats,
        )

    def collect(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for rows in self.partitions for row in rows]


def as_dicts(batch: pa.RecordBatch) -> Rows:
    if "fragment" not in batch.schema.names:
        return list(batch.to_pylist())
    return [row._asdict() for row in rows_of(batch)]


class Frames:
    """In the place of a session."""

    def __init__(self, buckets: int = 3, repeats: int = 0) -> None:
        self._buckets = self.defaultParallelism = buckets
        self._repeats = repeats
        self.conf = self.sparkContext = self

    def setJobGroup(self, group: str, description: str) -> None:
        """Nobody asks how far it is."""

    def get(self, name: str) -> str:
        assert name == "spark.sql.shuffle.partitions"
        return str(self._buckets)

    def range(self, start: int, end: int, step: int, count: int) -> Frame:
        rows = [{"id": number} for number in range(start, end, step)]
        return Frame([rows[n::count] for n in range(count)], repeats=self._repeats)

    @property
    def read(self) -> Frames:
        return self

    def schema(self, ddl: str) -> Frames:
        return self

    def parquet(self, folder: str) -> Frame:
        return _files[folder]

    def createDataFrame(self, rows: list[Row], ddl: str) -> Frame:
        return Frame([[row._asdict() for row in rows]], repeats=self._repeats)


def run_on_pandas(spark: Any, request: QueryRequest, asked: StageRequest) -> None:
    """In the place of `run_beside`: the stage is a function of pandas."""
    frames = [(each.name, pandas.concat(map(read_part, each.parts))) for each in asked.frames]
    unnamed = [frame for name, frame in frames if name is None]
    by_name = {name: frame for name, frame in frames if name is not None}
    try:
        made = named(asked.stage)(*unnamed, **by_name, **asked.params)
    except Exception as error:
        raise UserFunctionError(f"{type(error).__name__}: {error}") from error
    target = Path(asked.target)
    if asked.objects is not None:
        batches = [pa.RecordBatch.from_pandas(made[n::2], preserve_index=False) for n in range(2)]
        order = UploadOrder(asked.objects)
        staged = [one for n, each in enumerate(batches) for one in uploaded(order, n, 0, [each])]
        write_list(target, tuple(staged))
        return
    target.mkdir()
    for number in range(2):
        made[number::2].to_parquet(target / f"part-{number}.parquet", index=False)


def read_part(path: str) -> pandas.DataFrame:
    if not is_url(path):
        return pandas.read_parquet(path)
    with opened_parquet(parse_url(path)) as file:
        return file.read().to_pandas()


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
        state_location=str(folder / "state"),
        **{"rights": EVERYTHING, **more},
    )


def run_query(
    request: QueryRequest, spark: Any = None, publish: Publish | None = None
) -> QueryReply:
    if spark is None or isinstance(spark, Frames):
        frames = spark or Frames()
        return answer(
            request, lambda line: None, lambda _: frames, publish, run_on_pandas, lambda s: None
        )
    return answer(request, lambda line: None, lambda _: spark, publish)


def publish_all(request: QueryRequest, reply: QueryReply) -> None:
    """As the driver of a job does."""
    query = Query(QueryConfig(request, (), 1))
    outputs = Outputs(
        {task: partial(query.plugins.output, task) for task in reply.outputs}, lambda: True
    )
    outputs.write_spools(reply.outputs)
    outputs.publish(request.attempt, reply.outputs)


def publish_batch(request: QueryRequest, batch: QueryBatch) -> None:
    """A micro-batch, as the driver of a job does."""
    query = Query(QueryConfig(request, (), 1))
    outputs = Outputs(
        {task: partial(query.plugins.output, task) for task in batch.outputs}, lambda: True
    )
    outputs.write_spools(batch.outputs)
    outputs.publish(request.attempt, batch.outputs, over=False)
