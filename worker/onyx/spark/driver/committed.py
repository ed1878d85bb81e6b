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

A job that upgrades this one *closes* the document before it reads it: it replaces it by the same
with its name. So no micro-batch is committed behind what the new job begins with, although the old
one may run until its workers hear that it was killed.

Rejected: a marker beside the result, as for a stage at an output, because there would be one for
each output, and a crash between two of them would mix two runs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from onyx.base.structs import prepared
from onyx.errors import Unavailable
from onyx.ids import JobId
from onyx.log import documents
from onyx.log.interface import LogReader
from onyx.spark.driver.request import Held, OutputResult, Position, TaskCounts

INLINE_BYTES_MAX = 256 * 1024
"""What is larger goes into a chunk, and the document names it. Most is smaller: a query without end
would leave a chunk with each micro-batch until chunks are collected."""
CLOSINGS_MAX = 20
"""How often a document is closed that is replaced meanwhile: a micro-batch takes longer than that
many tries."""


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
    upgraded_by: str = ""
    """The job that goes on from here, so that nothing follows in this one."""

    @property
    def read(self) -> list[Position]:
        """The positions, those of each input together."""
        return sorted(self.positions, key=lambda each: each.task)


def committed(log: LogReader, job: JobId) -> tuple[Committed, int] | None:
    """What was committed last of a job, with the version of the document; None if nothing was.
    Blocks.

    Raises:
        StateError: what was committed cannot be read.
        Unavailable: ZooKeeper does not answer.
    """
    path = documents.committed_query(job)
    document = log.get_document(path)
    if document is None:
        return None
    digest = documents.chunk_of(document)
    data = document.data if digest is None else log.get_chunk(digest)
    return documents.decoded(job, path, data, Committed), document.version


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
    log.put_document(documents.committed_query(job), data, after, names)
    found = committed(log, job)
    assert found is not None, "it is there, whoever was first"
    return found


def has_ended(task: str) -> str:
    """Why a task whose inputs have ended takes nothing more."""
    return (
        f"task {task}: its inputs had ended, so that it has fired for the last time and holds "
        "nothing more, and now there is more to read: upgrade the job with "
        f"spec.upgrade.tasks.{task}: initialize"
    )


def close(log: LogReader, job: JobId, by: JobId) -> Committed:
    """What was committed last of a job that another one upgrades; nothing is from now on. Blocks.

    Args:
        by: the job that goes on.

    Raises:
        Fenced, StateError, Unavailable: as `commit` and `committed`.
    """
    for _ in range(CLOSINGS_MAX):
        found = committed(log, job)
        last, version = found or (Committed("", {}, {}, over=False), None)
        if last.over or last.upgraded_by:
            return last
        commit(log, job, replace(last, upgraded_by=by), version)
    raise Unavailable(f"job {job} keeps committing micro-batches; it is tried again")
