"""One fragment of a query, as Spark runs it on one partition: from rows to rows.

Only the name of `run_fragment` and its arguments, texts and numbers, pass through Spark's pickling.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa

from onyx.flow.batch import Batch
from onyx.program.phases import Phase
from onyx.spark_query.arrivals import downstream, new_reading, of_ending
from onyx.spark_query.micro_batches import Reached
from onyx.spark_query.outlet import Outlet
from onyx.spark_query.programs import Query, query_of
from onyx.spark_query.rows import Ending, Row, batch_of, report, rows_of
from onyx.spark_query.shares import Share
from onyx.spark_query.sinks import Sinks
from onyx.spark_query.sources import Inputs, partition_of_file
from onyx.spark_query.tree import Tree


def run_fragment(
    config: str, number: int, reached: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run a fragment over a partition.

    Args:
        config: a `QueryConfig` in JSON.
        reached: of a micro-batch a `Reached` in JSON, what was committed before; else empty.
        batches: numbers of partitions of inputs for fragment 0, rows for the others.

    Raises:
        TaskFailed: a task of the job has failed.
        Disordered: the query must run without folding before shuffles.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    writer = f"x{next(_numbers)}" if context is None else str(context.taskAttemptId())
    before = msgspec.json.decode(reached, type=Reached) if reached else None
    fragment = Fragment(query_of(config), number, writer, before)
    if number == 0:
        numbers = (int(each) for batch in batches for each in batch.column(0).to_pylist())
        made = fragment.read(numbers) if before is None else fragment.follow(numbers, before)
    else:
        made = fragment.fold(row for batch in batches for row in rows_of(batch))
    for rows in made:
        if rows:
            yield batch_of(rows)
    yield batch_of(fragment.finish())


class Fragment:
    """A fragment in one task of Spark."""

    def __init__(
        self, query: Query, number: int, writer: str, reached: Reached | None = None
    ) -> None:
        self._query = query
        self._number = number
        self._reached = reached
        query.tables.tend()
        self._sinks = Sinks(query, writer)
        self._tree = Tree(query, self._sinks)
        self._inputs = Inputs(query, self._tree.examined)

    def read(self, numbers: Iterable[int]) -> Iterator[list[Row]]:
        """Read these partitions of the inputs."""
        for number in numbers:
            if number == 0:
                yield Outlet(self._query.plan, "", self._query.config.buckets).woken()
            task, name = self._query.config.partitions[number]
            outlet = self._begin(f"{task}:{number}")
            below = downstream(self._query, task)
            try:
                partition = self._inputs.whole(task, name)
                for batches in partition.batches():
                    self._push(task, batches)
                    outlet.advanced(partition.mark, below)
                    yield outlet.take_rows()
            except Exception as error:
                raise self._tree.blamed(task, Phase.READ_BATCH.value, error) from error
            self._tree.end()
            outlet.end(below, newest_ms=partition.newest_ms)
            yield outlet.take_rows()

    def follow(self, numbers: Iterable[int], before: Reached) -> Iterator[list[Row]]:
        """Read what there is of these partitions, from where they were read before."""
        for number in filter(before.asks, numbers):
            start = before.positions[number]
            outlet = self._begin(f"{start.task}:{number}")
            below = downstream(self._query, start.task)
            try:
                partition = self._inputs.resumed(start)
                outlet.mark = partition.mark
                for batches in () if start.exhausted else partition.some():
                    self._push(start.task, batches)
                    outlet.advanced(partition.mark, below)
                    yield outlet.take_rows()
            except Exception as error:
                raise self._tree.blamed(start.task, Phase.READ_BATCH.value, error) from error
            self._tree.end()
            reached = partition.reached
            reading, origin = new_reading(), f"{start.task}:{number}"
            how: Ending = "end" if reached.exhausted else "idle" if reached.idle else "pause"
            outlet.end(below, how, of_ending(reading), reached.newest_ms)
            number = before.batches + 1
            said = report("position", start.task, reached, origin, number, reading)
            yield [*outlet.take_rows(), said]

    def fold(self, rows: Iterable[Row]) -> Iterator[list[Row]]:
        """Work on rows, those of a task and bucket together."""
        for (fragment, task, bucket), its in itertools.groupby(rows, key=lambda row: row[:3]):
            if fragment != self._number:
                yield from ([row] for row in its)
            elif self._query.plan.middle(task) is not None:
                yield from self._pass_on(task, bucket, its)
            else:
                yield from self._fold(task, bucket, its)

    def _pass_on(self, task: str, bucket: int, rows: Iterable[Row]) -> Iterator[list[Row]]:
        """The rows of a Spark stage, file by file. They have no event time."""
        outlet = self._begin(f"{task}:{bucket}")
        try:
            for row in rows:
                path = bytes(row.payload).decode()
                with partition_of_file(self._query, task, path) as partition:
                    for batches in partition.batches():
                        self._push(task, batches)
                        outlet.advanced(None, frozenset())
                        yield outlet.take_rows()
        except Exception as error:
            raise self._tree.blamed(task, Phase.READ_BATCH.value, error) from error
        self._tree.end()
        outlet.end(frozenset())
        yield outlet.take_rows()

    def finish(self) -> list[Row]:
        """What the fragment has written, and counts."""
        try:
            rows = self._sinks.finish()
        except Exception as error:
            raise self._tree.blamed(self._sinks.busy, Phase.SEND.value, error) from error
        self._inputs.close()
        return [*rows, report("counts", "", self._tree.counting.counts())]

    def _fold(self, task: str, bucket: int, rows: Iterable[Row]) -> Iterator[list[Row]]:
        outlet, below = self._begin(f"{task}:{bucket}"), downstream(self._query, task)
        self._tree.bucket = bucket
        share = Share(self._query, self._tree, task, bucket, self._reached)
        outlet.mark = share.mark
        try:
            share.begin()
            for row in rows:
                share.take(row)
                outlet.advanced(share.mark, below)
                yield outlet.take_rows()
            reported = share.end()
        except BaseException:
            share.close()
            raise
        self._tree.end()
        outlet.end(below, share.ending, of_ending(share.reading), share.arrivals.newest_ms)
        yield [*outlet.take_rows(), *reported]

    def _push(self, task: str, batches: Iterable[Batch]) -> None:
        """What was read at once: event time does not advance between its forms."""
        for batch in batches:
            self._tree.push(task, batch)

    def _begin(self, origin: str) -> Outlet:
        self._tree.outlet = Outlet(self._query.plan, origin, self._query.config.buckets)
        return self._tree.outlet


_numbers = itertools.count()
"""Numbers of writers outside of Spark."""
