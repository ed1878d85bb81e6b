"""One stage of a query, as Spark runs it on one partition: a function from rows to rows.

Only the name of `run_stage` and its arguments, texts and numbers, pass through Spark's pickling.
"""

from __future__ import annotations

import dataclasses
import glob
import itertools
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa

from onyx.flow.batch import Batch
from onyx.plugins.files.input import FilesInput
from onyx.plugins.files.options import InputOptions
from onyx.plugins.protocol import Input
from onyx.program.phases import Phase
from onyx.spark_query.arrivals import downstream
from onyx.spark_query.failure import Disordered, TaskFailed
from onyx.spark_query.micro_batches import Reached
from onyx.spark_query.outlet import Outlet
from onyx.spark_query.programs import Query, query_of
from onyx.spark_query.readings import new_reading, of_ending
from onyx.spark_query.rows import REPORTED, Ending, Row, batch_of, rows_of
from onyx.spark_query.shares import Share
from onyx.spark_query.sinks import Sinks
from onyx.spark_query.sources import Partition
from onyx.spark_query.tree import Tree

_numbers = itertools.count()
"""Numbers of writers outside of Spark."""


def run_stage(
    config: str, number: int, reached: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run a stage over a partition.

    Args:
        config: a `StageConfig` in JSON.
        reached: of a micro-batch a `Reached` in JSON, what was committed before; else empty.
        batches: numbers of partitions of inputs for stage 0, rows for the others.

    Raises:
        TaskFailed: a task of the job has failed.
        Disordered: the query must run without folding before shuffles.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    writer = f"x{next(_numbers)}" if context is None else str(context.taskAttemptId())
    before = msgspec.json.decode(reached, type=Reached) if reached else None
    stage = Stage(query_of(config), number, writer, before)
    if number == 0:
        numbers = (int(each) for batch in batches for each in batch.column(0).to_pylist())
        made = stage.read(numbers) if before is None else stage.follow(numbers, before)
    else:
        made = stage.fold(row for batch in batches for row in rows_of(batch))
    for rows in made:
        if rows:
            yield batch_of(rows)
    yield batch_of(stage.finish())


class Stage:
    """A stage in one task of Spark."""

    def __init__(
        self, query: Query, number: int, writer: str, reached: Reached | None = None
    ) -> None:
        self._query = query
        self._number = number
        self._reached = reached
        self._sinks = Sinks(query, writer)
        self._tree = Tree(query, self._sinks)
        self._inputs: dict[str, Input] = {}

    def read(self, numbers: Iterable[int]) -> Iterator[list[Row]]:
        """Read these partitions of the inputs."""
        for number in numbers:
            task, name = self._query.config.partitions[number]
            outlet = self._begin(f"{task}:{number}")
            below = downstream(self._query, task)
            try:
                partition = Partition(self._query, self._input(task), task, name)
                for batches in partition.batches():
                    self._push(task, batches)
                    outlet.advanced(partition.mark, below)
                    yield outlet.take_rows()
            except Exception as error:
                raise self._blamed(task, Phase.READ_BATCH, error) from error
            self._tree.end()
            outlet.end(below)
            yield outlet.take_rows()

    def follow(self, numbers: Iterable[int], before: Reached) -> Iterator[list[Row]]:
        """Read what there is of these partitions, from where they were read before."""
        for number in filter(before.asks, numbers):
            start = before.positions[number]
            outlet = self._begin(f"{start.task}:{number}")
            below = downstream(self._query, start.task)
            try:
                plugin = self._query.kept_input(start.task)
                if getattr(plugin, "examined", False):
                    self._tree.examined.add(start.task)
                partition = Partition(self._query, plugin, start.task, start.name)
                partition.resume(start)
                outlet.mark = partition.mark
                for batches in () if start.exhausted else partition.some():
                    self._push(start.task, batches)
                    outlet.advanced(partition.mark, below)
                    yield outlet.take_rows()
            except Exception as error:
                raise self._blamed(start.task, Phase.READ_BATCH, error) from error
            self._tree.end()
            reached = partition.reached
            reading, origin = new_reading(), f"{start.task}:{number}"
            how: Ending = "end" if reached.exhausted else "idle" if reached.idle else "pause"
            outlet.end(below, how, of_ending(reading))
            said = msgspec.json.encode(reached)
            yield [
                *outlet.take_rows(),
                Row(REPORTED, start.task, 0, before.batches + 1, origin, "position", reading, said),
            ]

    def fold(self, rows: Iterable[Row]) -> Iterator[list[Row]]:
        """Work on rows, those of a task and bucket together."""
        for (stage, task, bucket), its in itertools.groupby(rows, key=lambda row: row[:3]):
            if stage != self._number:
                yield from ([row] for row in its)
            elif self._query.plan.middle(task) is not None:
                yield from self._pass_on(task, bucket, its)
            else:
                yield from self._fold(task, bucket, its)

    def _pass_on(self, task: str, bucket: int, rows: Iterable[Row]) -> Iterator[list[Row]]:
        """The rows of a Spark stage, file by file. They have no event time."""
        outlet = self._begin(f"{task}:{bucket}")
        context = dataclasses.replace(self._query.context(task), batch_format="arrow")
        try:
            for row in rows:
                path = bytes(row.payload).decode()
                files = FilesInput(context, InputOptions(path=glob.escape(path)))
                partition = Partition(self._query, files, task, path, columns=True)
                for batches in partition.batches():
                    self._push(task, batches)
                    outlet.advanced(None, frozenset())
                    yield outlet.take_rows()
                files.close()
        except Exception as error:
            raise self._blamed(task, Phase.READ_BATCH, error) from error
        self._tree.end()
        outlet.end(frozenset())
        yield outlet.take_rows()

    def finish(self) -> list[Row]:
        """What the stage has written, and counts."""
        try:
            rows = self._sinks.finish()
        except Exception as error:
            raise self._blamed(self._sinks.busy, Phase.SEND, error) from error
        for plugin in self._inputs.values():
            plugin.close()
        counts = msgspec.json.encode(self._tree.counts())
        return [*rows, Row(REPORTED, "", 0, 0, "", "counts", None, counts)]

    def _fold(self, task: str, bucket: int, rows: Iterable[Row]) -> Iterator[list[Row]]:
        outlet, below = self._begin(f"{task}:{bucket}"), downstream(self._query, task)
        share = Share(self._query, self._tree, task, bucket, self._reached)
        outlet.mark = share.arrivals.mark
        share.begin()
        for row in rows:
            share.take(row)
            outlet.advanced(share.arrivals.mark, below)
            yield outlet.take_rows()
        reported = share.end()
        self._tree.end()
        outlet.end(below, share.ending, of_ending(share.reading))
        yield [*outlet.take_rows(), *reported]

    def _blamed(self, task: str, phase: Phase, error: Exception) -> Exception:
        if isinstance(error, TaskFailed | Disordered):
            return error
        return self._tree.failure(task, phase.value, error)

    def _push(self, task: str, batches: Iterable[Batch]) -> None:
        """What was read at once: event time does not advance between its forms."""
        for batch in batches:
            self._tree.push(task, batch)

    def _begin(self, origin: str) -> Outlet:
        self._tree.outlet = Outlet(self._query.plan, origin, self._query.config.buckets)
        return self._tree.outlet

    def _input(self, task: str) -> Input:
        if task not in self._inputs:
            plugin = self._inputs[task] = self._query.input(task)
            if getattr(plugin, "examined", False):
                self._tree.examined.add(task)
        return self._inputs[task]
