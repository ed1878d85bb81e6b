"""The driver of a job on Spark: one worker's hold on the job, from its start to its end."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from onyx.ids import GroupId, JobId
from onyx.log.interface import LogReader
from onyx.model.job import Job
from onyx.spark.driver.committed import Committed, commit, committed
from onyx.spark.driver.counts import NOTHING, Counts
from onyx.spark.driver.outputs import Outputs
from onyx.spark.driver.running import RunningQuery
from onyx.spark.query.request import QueryProgress, QueryReply, QueryRequest

StartQuery = Callable[[QueryRequest], RunningQuery]


@dataclass(slots=True)
class Driver:
    """What the phases of its task decide about. `look` and `publish` block."""

    job: Job
    """As in the manifest."""
    job_id: JobId
    log: LogReader
    request: QueryRequest
    """Without what is new in each run."""
    outputs: Outputs
    counts: Counts
    query: RunningQuery | None = None
    reply: QueryReply | None = None
    """Of the query that has staged everything."""
    committed: Committed | None = None
    attempt: str = ""
    """Name of the query that was started last."""
    attempts: int = 0
    """That have failed."""
    live: list[GroupId] = field(default_factory=list)
    """Groups that were there when this worker took the job over."""
    _progress: QueryProgress | None = field(default=None, init=False)

    def look(self, live: list[GroupId]) -> bool:
        """Whether a result is committed already; if not, fence off those who might still stage
        one: all but the groups that are there."""
        self.live = live
        self.committed = committed(self.log, self.job_id)
        if self.committed is None:
            self.outputs.fence(live)
        return self.committed is not None

    def begin(self, start: StartQuery) -> RunningQuery:
        """The query that runs; it is started if there is none."""
        if self.query is None:
            self.counts.begin()
            self._progress = None
            scratch = tempfile.mkdtemp(prefix="onyx-query-")
            self.attempt = uuid.uuid4().hex[:12]
            request = msgspec.structs.replace(self.request, scratch=scratch, attempt=self.attempt)
            self.query = start(request)
        return self.query

    def advanced(self) -> bool:
        """Whether the query has reported a new phase or new counts; if so, these are counted. How
        far Spark is does not count: `where` says it, as long as there is nothing else to say."""
        newest = None if self.query is None else self.query.progress
        before, self._progress = self._progress, newest
        if newest is None:
            return False
        self.counts.report(newest.tasks)
        return before is None or (before.phase, before.tasks) != (newest.phase, newest.tasks)

    def staged(self, reply: QueryReply) -> None:
        """The query has ended well."""
        self.reply = reply
        self.counts.report(reply.tasks)

    def publish(self) -> None:
        """Commit what was staged, and publish what is committed."""
        if self.committed is None:
            assert self.reply is not None, "there is a result"
            self.outputs.write_spools(self.reply.outputs)
            self.committed = commit(self.log, self.job_id, self.attempt, self.reply)
        self.outputs.publish(self.committed.attempt, self.committed.outputs)
        self.outputs.fence(self.live)

    def published(self) -> None:
        """Nothing of the query is needed any more."""
        self.counts.complete(self._read)
        self.drop_query()

    @property
    def completed(self) -> int:
        """Segments of all inputs whose result is committed."""
        return sum(self._read.values())

    @property
    def _read(self) -> dict[str, int]:
        """Segments of each input."""
        tasks = {} if self.committed is None else self.committed.tasks
        inputs = (entry.name for entry in self.job.catalog if entry.type == "input")
        return {task: tasks.get(task, NOTHING).read for task in inputs}

    def drop_query(self) -> None:
        """End the query, if one runs, and forget it. What it has staged goes, unless it has staged
        everything: then it may be committed, and somebody may be about to publish it."""
        query, self.query = self.query, None
        if query is not None:
            unfinished = self.reply is None
            query.end(partial(self.outputs.sweep, self.attempt) if unfinished else None)

    def close(self) -> None:
        """The worker gives the job up, or it has ended."""
        self.drop_query()
        self.counts.close()

    @property
    def where(self) -> str:
        """What the query does, in words; empty before it has reported."""
        said = self._progress
        if said is None:
            return "starting"
        far = f": {said.spark.words}" if said.spark.words else ""
        seen = f", see {said.ui_url}" if said.ui_url else ""
        return f"{said.phase}{far}{seen}"
