"""`write` and `writeStream`: the rows of a query go into an input of a running job.

Spark may run a part of a query again, with other rows in the same partition, and a batch in other
partitions. So neither a partition nor what is in it names rows that are the same again. Each run of
a part therefore holds its rows in the cluster under a name of its own, and Spark's commit, which
names one run of each part, has them taken (`requests.request`). A batch that is committed again
stays what it was.

A stream is known by the id in its checkpoint, and a batch by its number. Spark tells both to the
tasks only, so what a task returns carries them to the commit.

Rejected: ids of partition and number (a repeated batch may be cut otherwise: rows lost and
doubled); ids of what rows hold (two equal rows would be one); rows sent by the driver (its memory).

The rows of a part as requests: neither too many nor too large.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from onyx.errors import UserError
from onyx.requests.request import BatchOfWrite, Commit, HeldRequest, WriterOfBatch
from onyx.settings import from_environment
from onyx.spark_source.options import WriteOptions, in_one_line

if TYPE_CHECKING:
    from onyx.client.appender import Appender


REQUEST_BYTES_MAX = 3_900_000
"""A request has at most 4,000,000 with what is around the rows."""
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of Spark's tasks."""


class WriteTarget(msgspec.Struct, frozen=True):
    """The input that rows go to."""

    workers: tuple[str, ...]
    job: str
    task: str
    tenancy: str
    """Empty: whichever it is."""

    def appender(self) -> Appender:
        """With the certificates and the token of the process that asks (`ONYX_TLS_*`,
        `ONYX_CLIENT_*`)."""
        # Half of what has to be imported, and readers do not need it.
        from onyx.client.appender import Appender

        found = from_environment(os.environ)
        return Appender(
            self.workers, self.job, self.task, found.tls, client=found.client, tenancy=self.tenancy
        )


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one run of a part holds."""

    batch: BatchOfWrite
    writer: WriterOfBatch


class JobWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One write of all rows of a query."""

    def __init__(self, target: WriteTarget, options: WriteOptions) -> None:
        self._target = target
        self._options = options
        self._batch = BatchOfWrite(options.id or f"write/{uuid.uuid4().hex}", 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Hold the rows of a part."""
        with in_one_line():
            return _hold(self._target, self._options, self._batch, iterator)

    def commit(self, messages: Sequence[Written | None]) -> None:
        """Have the rows of all parts taken."""
        with in_one_line():
            _commit(self._target, self._options, self._batch, messages)

    def abort(self, messages: Sequence[Written | None]) -> None:
        """A commit that has failed may have been made. What is held goes with the job, or when the
        same write is committed."""


class JobStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Micro-batch after micro-batch."""

    def __init__(self, target: WriteTarget, options: WriteOptions) -> None:
        self._target = target
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Hold the rows of a part of a micro-batch."""
        with in_one_line():
            return _hold(self._target, self._options, _of_stream(), iterator)

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:
        """Have the rows of a micro-batch taken."""
        batches = {each.batch for each in messages if each is not None}
        if not batches:
            return
        (batch,) = batches
        assert batch.batch == batchId, "Spark says it to tasks and to the commit"
        with in_one_line():
            _commit(self._target, self._options, batch, messages)

    def abort(self, messages: Sequence[Written | None], batchId: int) -> None:
        """What is held goes later, as with `JobWriter.abort`."""


def _of_stream() -> BatchOfWrite:
    """The micro-batch whose task runs in this process."""
    context = TaskContext.get()
    query = context and context.getLocalProperty(QUERY)
    batch = context and context.getLocalProperty(BATCH)
    if not query or batch is None:
        raise UserError("Spark does not say of which query and micro-batch these rows are")
    return BatchOfWrite(f"query/{query}", int(batch))


def _hold(
    target: WriteTarget, options: WriteOptions, batch: BatchOfWrite, rows: Iterator[pa.RecordBatch]
) -> Written:
    name, count = uuid.uuid4().hex, 0
    with target.appender() as appender:
        for count, request in enumerate(requests_of(rows, options.batch_rows), 1):
            appender.hold(request, HeldRequest(batch, name, count - 1), options.timeout)
    return Written(batch, WriterOfBatch(name, count))


def _commit(
    target: WriteTarget,
    options: WriteOptions,
    batch: BatchOfWrite,
    messages: Sequence[Written | None],
) -> None:
    writers = tuple(each.writer for each in messages if each is not None and each.writer.requests)
    with target.appender() as appender:
        appender.commit(Commit(batch, writers), options.ack, options.timeout)


def requests_of(batches: Iterator[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    """The rows of all batches, in order, in as few batches as that takes.

    Args:
        rows_max: of one of them.

    Raises:
        UserError: a row alone is too large.
    """
    gathered: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        for piece in _pieces(batch, rows_max):
            piece_bytes = pa.ipc.get_record_batch_size(piece)
            full = rows + len(piece) > rows_max or size_bytes + piece_bytes > REQUEST_BYTES_MAX
            if gathered and full:
                yield _joined(gathered)
                gathered, rows, size_bytes = [], 0, 0
            gathered.append(piece)
            rows += len(piece)
            size_bytes += piece_bytes
    if gathered:
        yield _joined(gathered)


def _pieces(batch: pa.RecordBatch, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Slices of a batch that are small enough."""
    if not len(batch):
        return
    large = pa.ipc.get_record_batch_size(batch) > REQUEST_BYTES_MAX
    if len(batch) <= rows_max and not large:
        yield batch
    elif len(batch) == 1:
        raise UserError(
            f"a row has more than {REQUEST_BYTES_MAX:,} bytes, which is more than a request holds"
        )
    else:
        half = len(batch) // 2
        for first, count in ((0, half), (half, len(batch) - half)):
            yield from _pieces(batch.slice(first, count), rows_max)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
