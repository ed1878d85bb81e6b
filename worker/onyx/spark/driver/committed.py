"""The commit of a query: one document beside the log says what its outputs are to publish.

A job on Spark has many files in several places, and no file system publishes them in one step. So
the reply of the first query that ended is stored before anything of it is visible. The document is
created once and never changes, and its transaction checks the pulse of the worker. Hence:

* A worker that was declared dead commits nothing, however late it wakes up.
* Of two workers that commit, one is first, and both publish what that one has staged.
* Whoever takes over after the commit publishes the rest, and runs no query.

Rejected: a marker beside the result, as for a stage at an output, because there would be one for
each output, and a crash between two of them would mix two runs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onyx.ids import JobId
from onyx.log import job_documents
from onyx.log.interface import LogReader
from onyx.spark.query.request import OutputResult, QueryReply, TaskCounts
from onyx.structs import prepared


@prepared
class Committed(msgspec.Struct, frozen=True):
    """What was committed."""

    attempt: str
    """Of the query whose result this is; `QueryRequest.attempt`."""
    outputs: Mapping[str, OutputResult]
    """By task."""
    tasks: Mapping[str, TaskCounts]


def committed(log: LogReader, job: JobId) -> Committed | None:
    """What was committed of a job; None if nothing was. Blocks.

    Raises:
        Unavailable: ZooKeeper does not answer.
    """
    document = log.get_document(job_documents.committed_query(job))
    if document is None:
        return None
    return msgspec.json.decode(log.get_chunk(document.data.decode()), type=Committed)


def commit(log: LogReader, job: JobId, attempt: str, reply: QueryReply) -> Committed:
    """Commit what a query has staged; what was committed, by this worker or an earlier one. Blocks.

    Raises:
        Fenced: this worker was declared dead.
        Unavailable: ZooKeeper does not answer; try again.
    """
    digest = log.put_chunk(msgspec.json.encode(Committed(attempt, reply.outputs, reply.tasks)))
    log.put_document(job_documents.committed_query(job), digest.encode(), None)
    found = committed(log, job)
    assert found is not None, "it is there, whoever was first"
    return found
