"""The commit of a query: one document beside the log says what its outputs are to publish.

A job on Spark has many files in several outputs, and no file system publishes them in one step. So
the reply of the first query that ended is stored before anything of it is visible. The document is
created once, and its transaction checks the pulse of the worker. Hence:

* A worker that was declared dead commits nothing, however late it wakes up.
* Of two workers that commit, one is first, and both publish what that one has staged.
* Whoever takes over after the commit publishes the rest, and runs no query.

A query over inputs without end commits each micro-batch. The document is then replaced, if nobody
else has replaced it meanwhile, and says besides how far the inputs were read: where the next batch
begins, whoever runs it.

Rejected: a marker beside the result, as for a stage at an output, because there would be one for
each output, and a crash between two of them would mix two runs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onyx.ids import JobId
from onyx.log import job_documents
from onyx.log.interface import LogReader
from onyx.spark.driver.request import Held, OutputResult, Position, TaskCounts
from onyx.structs import prepared

INLINE_BYTES_MAX = 256 * 1024
"""What is larger goes into a chunk, and the document names it. Most is smaller: a query without end
would leave a chunk with each micro-batch until chunks are collected."""


@prepared
class Committed(msgspec.Struct, frozen=True):
    """What was committed."""

    attempt: str
    """The attempt of the query whose result this is; `QueryRequest.attempt`."""
    outputs: Mapping[str, OutputResult]
    """By task."""
    tasks: Mapping[str, TaskCounts]
    batch: int = 0
    """Number of the micro-batch; 0: all of a job over bounded inputs."""
    positions: tuple[Position, ...] = ()
    """Behind the micro-batch."""
    held: Held = Held()
    """What windows hold behind it."""
    over: bool = True
    """Whether nothing follows."""


def committed(log: LogReader, job: JobId) -> tuple[Committed, int] | None:
    """What was committed last of a job, with the version of the document; None if nothing was.
    Blocks.

    Raises:
        StateError: what was committed cannot be read.
        Unavailable: ZooKeeper does not answer.
    """
    path = job_documents.committed_query(job)
    document = log.get_document(path)
    if document is None:
        return None
    digest = job_documents.chunk_of(document)
    data = document.data if digest is None else log.get_chunk(digest)
    return job_documents.decoded(job, path, data, Committed), document.version


def commit(log: LogReader, job: JobId, new: Committed, after: int | None) -> tuple[Committed, int]:
    """Commit what a query has staged; what is committed now, by this worker or another one. Blocks.

    Args:
        after: version of the document that this one follows; None: there is none.

    Raises:
        Fenced: this worker was declared dead.
        Unavailable: ZooKeeper does not answer; try again.
    """
    data = msgspec.json.encode(new)
    names: tuple[str, ...] = ()
    if len(data) > INLINE_BYTES_MAX:
        names = (log.put_chunk(data),)
        data = names[0].encode()
    log.put_document(job_documents.committed_query(job), data, after, names)
    found = committed(log, job)
    assert found is not None, "it is there, whoever was first"
    return found
