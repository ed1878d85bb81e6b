"""What a worker asks of the process that runs a whole job on Spark, and what that answers.

The request is one line of JSON on standard input. On standard output come JSON lines: a
`QueryProgress` now and then, and at the end one `QueryReply`, after which the process ends. A line
is told apart by its `type`.

A query over inputs without end says a `QueryBatch` for each micro-batch, when everything of it is
staged, and waits for a `Published` of the same number on standard input. Only then does Spark
commit the batch.

Nothing that the process writes is visible before the worker publishes it. An output that stages
(`plugins.protocol.StagingOutput`: `files` and `spark`) hands over tokens, and the worker gives each
to `finish` of the same plugin, under the same incarnation. What goes to an output that cannot stage
(`stdout`) is spooled, and the worker writes it. The reply is plain JSON, so that the worker can
store it before it publishes: who takes over then publishes the rest, and does not run the query
again.

What the task of a driver needs of a query that runs is `RunningQuery`; `process` is the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, Protocol

import msgspec

from onyx.base.structs import prepared
from onyx.plugins.protocol import SealProgress
from onyx.reports.outcomes import TaskTotals
from onyx.rights import Rights


@prepared
class Position(msgspec.Struct, frozen=True):
    """How far a partition of an input was read, by all batches until one."""

    task: str
    name: str
    position: int = 0
    """The position of the next segment."""
    cursor: int = 0
    """At or before it: where a reader is opened."""
    state: Any = None
    """For a reader at `cursor` (`plugins.protocol.Cursor`)."""
    exhausted: bool = False
    newest_ms: int | None = None
    """The latest event time of all that was read, where the input assigns watermarks."""
    seen_ms: int = 0
    """When the last segment with an event time was read, or reading began: since the epoch."""
    idle: bool = False
    """Whether it holds no watermark back, because nothing came for `idleTimeout`."""


@prepared
class BucketState(msgspec.Struct, frozen=True):
    """What a bucket of a task behind a shuffle knows behind a micro-batch."""

    task: str
    bucket: int
    mark: int | None = None
    """Event time has come to this there, in milliseconds."""
    passed_on: int | None = None
    """Event time of what it sends on, which is behind for a join."""
    idle: bool = False
    """Whether nothing that feeds it holds the watermark back."""
    files: tuple[tuple[str, int], ...] = ()
    """Chunks in the state store, each with its bytes: its whole state, then what has changed
    (`spark_query.folding.share_state`)."""
    due_ms: int | None = None
    """When a timer fires next: since the epoch."""
    over: bool = False
    """All that feeds it has ended, and its windows have fired for the last time."""
    left: int = 0
    """Segments that wait in the inbox of its operator."""


@prepared
class Held(msgspec.Struct, frozen=True):
    """What the windows of a job hold behind a micro-batch."""

    buckets: int = 0
    """How many shares the groups of a task are in: for good, because each has its state. 0: not
    decided yet."""
    states: tuple[BucketState, ...] = ()

    def of(self, task: str, shards: Collection[int] | None) -> tuple[BucketState, ...]:
        """What the buckets of a task hold that have some of these shards; None: all buckets."""
        of_task = tuple(each for each in self.states if each.task == task)
        if shards is None or not of_task:
            return of_task
        wanted = {shard % self.buckets for shard in shards}
        return tuple(each for each in of_task if each.bucket in wanted)


@prepared
class QueryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run of a job."""

    manifest: dict[str, Any]
    """The job, as it is stored beside the log (`model.parsing.job.parse_mapping`)."""
    job_id: str
    modules: tuple[str, ...]
    """Whose functions the job may name."""
    incarnation: str
    """The incarnation of the worker. Staged work carries it, and is removed when it is fenced
    off."""
    attempt: str
    """A name for this run that no other run of the incarnation has; letters and digits."""
    scratch: str
    """Folder for spools and Spark's own files, which exists. Who starts the process makes it, and
    removes it when everything is published."""
    fn_params: dict[str, list[Any]] = msgspec.field(default_factory=dict)
    """Leading arguments of functions that the worker was started with, by task."""
    rights: Rights = Rights()
    """What the job may name of its worker."""
    data_dir: str = ""
    """Folder that relative paths of plugins count from."""
    batches: int = 0
    """Micro-batches of the job that are committed."""
    positions: tuple[Position, ...] = ()
    """How far these have read."""
    held: Held = Held()
    """What windows hold behind them."""
    endless: bool = False
    """Whether it has inputs without end, and no stage of the user in its middle."""
    draining: bool = False
    """Whether nothing more is read of inputs without end: windows fire for the last time."""
    state_location: str = ""
    """URL or folder of the state store, as executors see it."""
    state_group_access: bool = False
    """Whether its files are for the group of the user too."""
    master: str = "local[*]"
    spark_conf: dict[str, str] = msgspec.field(default_factory=dict)
    combine: bool = True
    """Whether windows may be folded before a shuffle (`model.combining`)."""
    stage_attempts_max: int = 3
    """How often a Spark stage in the middle is run that fails."""
    table_bytes_max: int = 1_073_741_824
    """Largest table that a process of Spark holds."""
    report_values: bool = True
    """Whether failures may show what is in a segment."""
    parent_pid: int = 0
    """The process that asks; the query does not outlive it. 0: nobody to watch."""


@prepared
class TaskCounts(msgspec.Struct, frozen=True):
    """Segments of one task until now. A part that Spark ran twice counts twice."""

    read: int = 0
    written: int = 0
    failed: int = 0
    """The segments for which a dead letter was sent."""
    unmatched: int = 0
    """The segments for which no flow condition holds."""
    late: int = 0
    first_failed: str = ""
    """The error of the first."""
    first_unmatched: str = ""
    """What the first lacks, as far as that is known."""
    without_row: int = 0
    """The segments for which a join has found nothing."""

    @property
    def totals(self) -> TaskTotals:
        """The counts in the form of those of peers."""
        return TaskTotals(
            self.read,
            self.written,
            dead_letters=self.failed,
            unmatched=self.unmatched,
            late=self.late,
            without_row=self.without_row,
            first_dead_letter=self.first_failed,
            first_unmatched=self.first_unmatched,
        )

    def plus(self, other: TaskCounts) -> TaskCounts:
        """Both together."""
        return TaskCounts(
            self.read + other.read,
            self.written + other.written,
            self.failed + other.failed,
            self.unmatched + other.unmatched,
            self.late + other.late,
            self.first_failed or other.first_failed,
            self.first_unmatched or other.first_unmatched,
            self.without_row + other.without_row,
        )


@prepared
class QueryProgress(msgspec.Struct, frozen=True, tag_field="type", tag="progress"):
    """How far the query has come."""

    phase: Literal["starting", "running", "done"]
    tasks: Mapping[str, TaskCounts] = msgspec.field(default_factory=dict)
    batch: int = 0
    """Micro-batches that are published. Always 0 over bounded inputs, which are one batch."""
    begun: int = 0
    """Number of the micro-batch that it works on; 0: of none."""
    waited: int = 0
    """Rises while a query waits for segments, so that this is no standstill."""
    ui_url: str | None = None
    """The address of the pages of Spark, if it has one."""
    spark: SealProgress = msgspec.field(default_factory=SealProgress)
    """By Spark's own account of its jobs."""


@prepared
class QueryFailure(msgspec.Struct, frozen=True):
    """Why a query failed."""

    message: str
    """One sentence or more, with the task and the segment; no stack trace of Spark."""
    by_user: bool
    """The job cannot succeed as it is: its functions or data."""
    task: str | None = None
    report: dict[str, Any] | None = None
    """The report as a task stores it beside the log (`program.failure.report`), if a task
    failed."""
    away: bool = True
    """Spark could not run it, and may be able to soon. False: nobody knows whose fault it is."""


class OutputResult(msgspec.Struct, frozen=True):
    """What one output task is to publish."""

    tokens: tuple[dict[str, Any], ...] = ()
    """For `finish` of its plugin."""
    spools: tuple[str, ...] = ()
    """Files of encoded segments for `write` of its plugin (`outputs`)."""


@prepared
class QueryReply(msgspec.Struct, frozen=True, tag_field="type", tag="reply"):
    """How a query ended."""

    failure: QueryFailure | None = None
    outputs: Mapping[str, OutputResult] = msgspec.field(default_factory=dict)
    """By task; every output that stages or spools, even if nothing came to it."""
    tasks: Mapping[str, TaskCounts] = msgspec.field(default_factory=dict)
    """The final counts."""


@prepared
class QueryBatch(msgspec.Struct, frozen=True, tag_field="type", tag="batch"):
    """A micro-batch is staged, and waits until it is published."""

    number: int
    """The batch's number within the job, from 1 on."""
    outputs: Mapping[str, OutputResult]
    """By task; every output that stages or spools."""
    tasks: Mapping[str, TaskCounts]
    """Counts of the query until now."""
    positions: tuple[Position, ...]
    """The positions of all partitions, behind the batch; the last ones are of those that were there
    before."""
    held: Held = Held()
    """What windows hold behind the batch."""


@prepared
class Published(msgspec.Struct, frozen=True):
    """A micro-batch is committed and published."""

    number: int


QueryLine = QueryProgress | QueryBatch | QueryReply
"""A line of standard output."""
lines = msgspec.json.Decoder(QueryLine)
"""Reads one. Made here, once: several threads may use it."""


class RunningQuery(Protocol):
    """One run of a job on Spark. Nothing here blocks."""

    @property
    def progress(self) -> QueryProgress | None:
        """The newest report; None before the first one."""
        ...

    @property
    def batch(self) -> QueryBatch | None:
        """A micro-batch that is staged and not published; None if there is none."""
        ...

    def published(self, number: int) -> None:
        """The micro-batch of this number is published: the query goes on."""
        ...

    def reply(self) -> QueryReply | None:
        """How it ended; None while it runs, and while anything that it started may still write.

        Raises:
            UserError: this worker can run no Spark.
            Blocked: there is no room for its files.
            Unavailable: it ended without a reply.
        """
        ...

    def end(self, then: Callable[[], None] | None = None) -> None:
        """End it if it runs, and remove its scratch folder. Idempotent.

        Args:
            then: called on another thread, when nothing of it is left that could write.
        """
        ...
