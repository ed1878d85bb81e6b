"""The function that Spark runs on each of its partitions: from rows to rows.

Only its name and its arguments, texts and numbers, pass through Spark's pickling.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from onyx.spark_query.fragment import Fragment
from onyx.spark_query.micro_batches import Reached
from onyx.spark_query.programs import query_of
from onyx.spark_query.rows import batch_of, rows_of

_numbers = itertools.count()
"""Numbers of writers outside of Spark."""


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
