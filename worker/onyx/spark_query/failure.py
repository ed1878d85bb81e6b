"""How the failure of a task gets from a Python worker of Spark to the person who must act.

Spark shows an exception of a Python worker as text, between stack traces of its own. So the report
of a task travels inside the message, encoded, and the driver takes it out again. A row that reports
it was rejected: Spark would go on with all other partitions.
"""

from __future__ import annotations

import base64
import re

import msgspec

from onyx.errors import OnyxError, UserError
from onyx.flow.batch import Batch
from onyx.ids import JobId, PeerId, TaskName
from onyx.program.failed_batch import SPARK_BYTES_MAX, kept
from onyx.program.failure import Failure, report
from onyx.spark.driver.request import QueryFailure
from onyx.spark.session.blame import blame, shortened
from onyx.spark.session.jvm import how_ended

_MARK = "onyx-failure"
_DISORDERED = "onyx-disordered"
_FOUND = re.compile(rf"{_MARK}:([A-Za-z0-9+/=]+):{_MARK}")


class TaskFailed(Exception):
    """A task has failed, and so does the query."""

    def __init__(self, failure: QueryFailure) -> None:
        encoded = base64.b64encode(msgspec.json.encode(failure)).decode()
        super().__init__(f"{_MARK}:{encoded}:{_MARK}")


class Disordered(OnyxError):
    """A segment came behind the watermark of its partition. The query cannot combine states
    (`spark_query.folding.combine`), and runs again without."""

    def __init__(self, task: str) -> None:
        super().__init__(f"{_DISORDERED}: a segment of task {task!r} is behind the watermark")


def is_disordered(error: BaseException) -> bool:
    """Whether an exception of Spark, or of ours, is about such a segment."""
    return _DISORDERED in str(error)


def failed(
    job: str,
    task: str,
    peer: str,
    phase: str,
    error: Exception,
    values: bool,
    batch: Batch | None = None,
) -> TaskFailed | Disordered:
    """What is raised when a task of the job has failed.

    Args:
        values: whether what is in a segment may be shown.
        batch: that it worked on.
    """
    failure = error if isinstance(error, Failure) else Failure(phase, error)
    if isinstance(failure.error, Disordered):
        return failure.error
    found = report(JobId(job), TaskName(task), PeerId(peer), failure, values)
    if values and batch is not None:
        found["batch"] = kept(batch, failure.index, SPARK_BYTES_MAX)
    message = f"task {task!r} failed in {failure.phase}: {found['detail']}"
    by_user = isinstance(failure.error, UserError) or not isinstance(failure.error, OnyxError)
    return TaskFailed(QueryFailure(message, by_user, task, found))


def found_in(error: BaseException) -> QueryFailure:
    """The failure that an exception of Spark, or of ours, is about."""
    match = _FOUND.search(str(error))
    if match is not None:
        return msgspec.json.decode(base64.b64decode(match[1]), type=QueryFailure)
    found = blame(error)
    if not found.by_user and (died := how_ended()):
        said = f"the JVM of Spark {died} while the query ran ({found.message.splitlines()[0]})"
        return QueryFailure(said, by_user=False, away=True)
    return QueryFailure(shortened(found.message), found.by_user, away=found.away)
