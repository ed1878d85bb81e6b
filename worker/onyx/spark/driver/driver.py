"""The driver of a job on Spark: one worker's hold on the job, from its start to its end, with what
it looks after beside the query.

**Leftovers** of runs in the `path` of Spark stages lie where workers and Spark both see them, so
they do not go with the scratch folder. A run has a folder there, `<incarnation>/<attempt>`, and its
worker removes that when the run is over.

**States** are chunks that processes of Spark write (`spark_query.folding.share_state`), and only
those count that a committed document names. Removing needs no fence: the number of the batch is in
the name, and a chunk up to the number that is committed, which that commit does not name, is named
by no later one.

**Counts** of the query become metrics of the tasks of its job.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from onyx.base.seams import Clock
from onyx.errors import OnyxError, Unavailable
from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.log.interface import LogReader
from onyx.model.job import Job
from onyx.plugins.attempts import Attempts
from onyx.plugins.protocol import SealProgress
from onyx.spark.driver.committed import Committed, commit, committed
from onyx.spark.driver.outputs import Outputs
from onyx.spark.driver.request import (
    Held,
    QueryBatch,
    QueryProgress,
    QueryReply,
    QueryRequest,
    RunningQuery,
    TaskCounts,
)
from onyx.state.location import check_shared
from onyx.state.names import bucket_chunk, bucket_prefix
from onyx.storage.interface import BlobStore, Location
from onyx.storage.opening import absolute
from onyx.telemetry.catalog import (
    DEAD_LETTERS,
    LATE_SEGMENTS,
    RETRIES,
    SOURCE_OFFSET,
    UNMATCHED,
    WITHOUT_ROW,
)
from onyx.telemetry.interface import TaskMetrics
from onyx.telemetry.tallies import BatchTally

StartQuery = Callable[[QueryRequest], RunningQuery]
STARTING = QueryProgress("starting")


@dataclass(slots=True)
class Driver:
    """What the phases of its task decide about. `look` and `publish` block."""

    job: Job
    """The job as in the manifest."""
    job_id: JobId
    log: LogReader
    clock: Clock
    request: QueryRequest
    """Without what is new in each run."""
    outputs: Outputs
    leftovers: Leftovers
    """The leftovers of Spark stages in the middle."""
    counts: Counts
    states: States | None = None
    """The states of windows over inputs without end; None: the job has none."""
    query: RunningQuery | None = None
    reply: QueryReply | None = None
    """The reply of the query that has staged everything."""
    batch: QueryBatch | None = None
    """The micro-batch that is committed and published now."""
    committed: Committed | None = None
    """The last commit."""
    attempt: str = ""
    """Name of the query that was started last."""
    attempts: Attempts = field(default_factory=Attempts)
    """The attempts of the query; a micro-batch begins anew."""
    seals: Attempts = field(default_factory=Attempts)
    """The attempts to seal an output."""
    draining: bool = False
    """Whether the query reads nothing more, and its windows fire for the last time."""
    live: list[GroupId] = field(default_factory=list)
    """Groups that were there when this worker took the job over."""
    carry_over: Callable[[], Committed] | None = None
    """Gives what the job begins with that upgrades another one. Blocks."""
    _progress: QueryProgress | None = field(default=None, init=False)
    _version: int | None = field(default=None, init=False)
    """The version of the document of the commit."""
    _before: dict[str, TaskCounts] = field(default_factory=dict, init=False)
    """Counts of what was committed when the query began."""
    _begun: tuple[int, float] = field(default=(0, 0.0), init=False)
    """The micro-batch that was begun last, and when this worker heard of it first. One that is run
    again was begun before."""

    def look(self, live: list[GroupId]) -> bool:
        """Whether a result is committed already; if not, fence off those who might still stage
        one: all but the groups that are there."""
        self.live = live
        found = committed(self.log, self.job_id)
        if self.states is not None:
            held, batch = (Held(), NO_BATCH) if found is None else (found[0].held, found[0].batch)
            self.states.take_over(self.log, held, batch)
        if found is None and self.carry_over is not None:
            found = commit(self.log, self.job_id, self.carry_over(), None)
        if found is None:
            self.outputs.fence(live)
            self.leftovers.fence(live)
            return False
        self.committed, self._version = found
        return True

    def begin(self, start: StartQuery) -> RunningQuery:
        """The query that runs; it is started if there is none."""
        if self.query is None:
            self.counts.begin(self.read)
            self._progress = None
            self.attempt = uuid.uuid4().hex[:12]
            last = self.committed
            self._before = {} if last is None else dict(last.tasks)
            request = msgspec.structs.replace(
                self.request,
                attempt=self.attempt,
                batches=0 if last is None else last.batch,
                positions=() if last is None else last.positions,
                held=Held() if last is None else last.held,
                draining=self.draining,
                state_location="" if self.states is None else self.states.location,
            )
            self.query = start(request)
        return self.query

    def advanced(self) -> bool:
        """Whether the query has reported new counts, or that there is nothing to read; if so, these
        are counted. How far Spark is does not count: `where` says it, as long as there is nothing
        else to say. Nor does a phase: a query that fails again and again begins each time."""
        newest = None if self.query is None else self.query.progress
        before, self._progress = self._progress or STARTING, newest
        if newest is None:
            return False
        if newest.begun > self._begun[0]:
            self._begun = newest.begun, self.clock.monotonic_s()
        self.counts.report(newest.tasks)
        return (before.tasks, before.waited) != (newest.tasks, newest.waited)

    def staged(self, reply: QueryReply) -> None:
        """The query has ended well."""
        self.reply = reply
        self.counts.report(reply.tasks)

    def take_batch(self) -> bool:
        """Whether the query has staged a micro-batch, which is to be published now."""
        self.batch = None if self.query is None else self.query.batch
        if self.batch is not None:
            self.attempts = Attempts()
            self.counts.report(self.batch.tasks)
        return self.batch is not None

    def publish(self) -> None:
        """Commit what was staged, and publish what is committed.

        Raises:
            SealFailed: what is committed is published, and an output cannot be sealed.
            Unavailable: not now; or another worker has committed, and this one is stopped soon.
        """
        new, before = self._to_commit(), self.committed
        if new is not None:
            self.outputs.write_spools(new.outputs)
            found, version = commit(self.log, self.job_id, new, self._version)
            if found.upgraded_by:
                raise Unavailable(f"job {found.upgraded_by} goes on from micro-batch {found.batch}")
            if not found.over and found.attempt != new.attempt:
                raise Unavailable(f"another worker has committed micro-batch {found.batch}")
            self.committed, self._version = found, version
            self.outputs.remove_spools(new.outputs)
        assert self.committed is not None, "there is a result"
        last = self.committed
        self.outputs.publish(last.attempt, last.outputs, last.over)
        self.outputs.fence(self.live)
        self.leftovers.fence(self.live)
        if self.states is not None and before is not None:
            self.states.replaced(before.held, last.held)

    def _to_commit(self) -> Committed | None:
        """What is staged and not committed yet."""
        last = self.committed
        if last is not None and last.over:
            return None
        if self.batch is not None:
            batch = self.batch
            if last is not None and last.batch == batch.number:
                return None
            tasks = added(self._before, batch.tasks)
            return Committed(
                self.attempt, batch.outputs, tasks, batch.number, batch.positions, batch.held,
                over=False,
            )  # fmt: skip
        if self.reply is None:
            return None
        tasks = added(self._before, self.reply.tasks)
        number, positions = (0, ()) if last is None else (last.batch, last.positions)
        return Committed(self.attempt, self.reply.outputs, tasks, number, positions)

    def published(self) -> bool:
        """What is committed is published; True when nothing follows."""
        assert self.committed is not None, "published before"
        begun_s = self.begun_s
        seconds = None if begun_s is None else self.clock.monotonic_s() - begun_s
        self.counts.complete(self.read, seconds)
        batch, self.batch = self.batch, None
        if batch is not None and self.query is not None:
            self.query.published(batch.number)
        if self.committed.over:
            self.drop_query()
        return self.committed.over

    @property
    def is_over(self) -> bool:
        """Whether what is committed is the whole result."""
        return self.committed is not None and self.committed.over

    @property
    def completed(self) -> int:
        """Segments of all inputs whose result is committed."""
        return sum(self.read.values())

    @property
    def begun_s(self) -> float | None:
        """Since when the micro-batch runs that is not published; None without one."""
        number, begun_s = self._begun
        last = 0 if self.committed is None else self.committed.batch
        return begun_s if number > last or (number and self.batch is not None) else None

    def in_flight(self, task: str) -> int:
        """Segments that an input has read of a micro-batch that is staged and not committed."""
        batch = self.batch
        if batch is None:
            return 0
        read = self._before.get(task, NOTHING).read + batch.tasks.get(task, NOTHING).read
        return max(0, read - self.read.get(task, 0))

    @property
    def read(self) -> dict[str, int]:
        """Segments of each input whose result is committed."""
        tasks = {} if self.committed is None else self.committed.tasks
        inputs = (entry.name for entry in self.job.catalog if entry.type == "input")
        return {task: tasks.get(task, NOTHING).read for task in inputs}

    def drain(self) -> bool:
        """The job drains; False if its query is to run nevertheless, because windows fire for the
        last time: then one begins that does only this."""
        if self.states is None or self.committed is None:
            self.drop_query()
            return True
        if not self.draining:
            self.drop_query()
            self.draining = True
        return False

    def drop_query(self) -> None:
        """End the query, if one runs, and forget it. What it has staged goes, unless it may be
        committed, and somebody may be about to publish it."""
        query, self.query = self.query, None
        if query is not None:
            query.end(partial(self._sweep, self.attempt, self.reply is None and self.batch is None))

    def _sweep(self, attempt: str, unfinished: bool) -> None:
        self.leftovers.sweep(attempt)
        if unfinished:
            self.outputs.sweep(attempt)

    def close(self) -> None:
        """The worker gives the job up, or it has ended."""
        self.drop_query()
        self.counts.close()

    @property
    def spark(self) -> SealProgress:
        """What Spark says of the query that runs."""
        return SealProgress() if self._progress is None else self._progress.spark

    @property
    def where(self) -> str:
        """What the query does, in words; empty before it has reported."""
        said = self._progress
        if said is None:
            return "starting"
        far = f": {said.spark.words}" if said.spark.words else ""
        seen = f", see {said.ui_url}" if said.ui_url and "see " not in far else ""
        number = 0 if self.committed is None else self.committed.batch
        batches = f", {number:,} micro-batches are published" if number else ""
        return f"{said.phase}{batches}{far}{seen}"


class Leftovers:
    """What runs leave in the `path` of a job's stages, as the driver of the job removes it."""

    def __init__(self, locations: Sequence[Location], own: GroupId) -> None:
        self._locations = locations
        self._own = own

    def fence(self, live: Iterable[GroupId]) -> None:
        """Remove what is of other groups than these. Somebody there who still runs a query has lost
        its files, and fails."""
        kept = set(live)
        for location in self._locations:
            with contextlib.suppress(OnyxError):
                for entry in location.entries() or ():
                    if entry.name not in kept:
                        _remove(location, entry.name)

    def sweep(self, attempt: str) -> None:
        """Remove what a run of this worker has left."""
        for location in self._locations:
            _remove(location, f"{self._own}/{attempt}")


def _remove(location: Location, name: str) -> None:
    """Remove a folder, and those that it was in if nothing is left there, as far as that is
    possible now."""
    with contextlib.suppress(OnyxError):
        location.remove_tree(name)
        location.prune(name)


logger = logging.getLogger("onyx.task")

NO_BATCH = -1
"""In the place of the number of the last micro-batch: nothing is committed. What a job begins with
that upgrades another one is of batch 0."""


class States:
    """The states of one driver. Methods block."""

    def __init__(self, store: BlobStore, location: str, job: JobId, peer: PeerId) -> None:
        """`location`: URL or path of the store."""
        self._store, self._job, self._peer = store, job, peer
        self.location = absolute(location, os.getcwd())
        """The location as every process of Spark must see it."""

    def take_over(self, log: LogReader, held: Held, batch: int) -> None:
        """Make sure that this worker sees what others have written, and remove what they have left.

        Args:
            held: what is committed.
            batch: number of that micro-batch, or NO_BATCH: somebody else may just be writing what
                the job begins with.

        Raises:
            StateError: the worker has another state store than those before.
            Fenced, Unavailable, UserError: as everything of log and store.
        """
        check_shared(self._store, log, self._job, self._peer, self.location)
        named = set(_chunks(self._job, held))
        for each in self._store.list(bucket_prefix(self._job)):
            number = each.name.rpartition("/")[2].partition("-")[0]
            if number.isdecimal() and int(number) <= batch and each.name not in named:
                self._store.delete(each.name)

    def replaced(self, before: Held, after: Held) -> None:
        """Remove what the new commit does not need; what cannot be removed goes later."""
        needed = set(_chunks(self._job, after))
        try:
            for name in _chunks(self._job, before):
                if name not in needed:
                    self._store.delete(name)
        except OnyxError as error:
            logger.warning("job %s: state that nobody needs is left: %s", self._job, error)


def _chunks(job: JobId, held: Held) -> list[str]:
    return [bucket_chunk(job, state.task, name) for state in held.states for name, _ in state.files]


NOTHING = TaskCounts()


def added(one: Mapping[str, TaskCounts], other: Mapping[str, TaskCounts]) -> dict[str, TaskCounts]:
    """The counts of two queries together."""
    return {
        task: one.get(task, NOTHING).plus(other.get(task, NOTHING))
        for task in sorted({*one, *other})
    }


class Counts:
    """The counts of the tasks of one job. A query that is run again counts again, as replays do on
    peers."""

    def __init__(self, tasks: Iterable[str], metrics: Callable[[TaskName], TaskMetrics]) -> None:
        """`metrics`: where a task reports."""
        self._metrics = {task: metrics(TaskName(task)) for task in tasks}
        self._seen: dict[str, TaskCounts] = {}
        self._published: Mapping[str, int] = {}
        self._completed: dict[str, int] = {}

    def begin(self, published: Mapping[str, int]) -> None:
        """A query begins, and its counts with it.

        Args:
            published: what each input has read whose results are published.
        """
        for task, segments in published.items():
            here = segments - self._published.get(task, 0)
            again = self._seen.get(task, NOTHING).read - here
            if again > 0:
                self._metrics[task].add(RETRIES, again)
        self._published = published
        self._completed = dict(published)
        self._seen.clear()

    def report(self, tasks: Mapping[str, TaskCounts]) -> None:
        """Report what is new of the counts of the query."""
        for task, counts in tasks.items():
            metrics, seen = self._metrics.get(task), self._seen.get(task, NOTHING)
            if metrics is None or counts == seen:
                continue
            self._seen[task] = counts
            read, written = counts.read - seen.read, counts.written - seen.written
            metrics.batch(max(0, read), max(0, written))
            metrics.add(DEAD_LETTERS, max(0, counts.failed - seen.failed))
            metrics.add(UNMATCHED, max(0, counts.unmatched - seen.unmatched))
            metrics.add(LATE_SEGMENTS, max(0, counts.late - seen.late))
            metrics.add(WITHOUT_ROW, max(0, counts.without_row - seen.without_row))
            for metric, text in (
                (DEAD_LETTERS, counts.first_failed),
                (UNMATCHED, counts.first_unmatched),
            ):
                if text:
                    metrics.note(metric, partial(str, text))

    def complete(self, read: Mapping[str, int], seconds: float | None) -> None:
        """The result is published: what the inputs have read is completed.

        Args:
            seconds: since the micro-batch was begun that is published; None: nobody knows.
        """
        for task, segments in read.items():
            self._metrics[task].set(SOURCE_OFFSET, segments)
            new = segments - self._completed.get(task, 0)
            if seconds is not None and new > 0:
                self._metrics[task].completed(seconds, new)
        self._completed = dict(read)

    def tallies(self) -> dict[str, BatchTally | None]:
        """What each task has counted."""
        return {task: metrics.tally for task, metrics in self._metrics.items()}

    def close(self) -> None:
        """The driver leaves the job."""
        for metrics in self._metrics.values():
            metrics.close()
