"""The plugin protocol: how Onyx reads from and writes to the world.

A plugin is a function that takes a `PluginContext` and returns an `Input` or an `Output`. Built-in
ones have short names (`files`, `generator`, ...); a user's own is named `package.module:name`.
Inputs and readers derive from the classes here, because what an input need not say has a default.

Inputs are replayable: the positions of a partition are dense, and position p is the same segment
each time it is read. So a lost segment is replayed from the source, and none is kept in memory for
it. Outputs count how many of the segments they were given are durable; only those are acked.

Segments cross this seam as lists of dicts, or as Arrow record batches for plugins that have the
methods for them (`ColumnsReader`, `ColumnsOutput`). Nowhere else do plugins touch the engine.

What some plugins of Onyx have in addition stands behind `Output`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    runtime_checkable,
)

import msgspec
from msgspec import field

from onyx.base.on_demand import OnDemand
from onyx.base.seams import Clock
from onyx.errors import UserError
from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, Slot, TaskName
from onyx.ledger.retry_delay import DEFAULT, RetryDelay
from onyx.model.job import Spark
from onyx.rights import Rights
from onyx.storage.opening import absolute, is_remote
from onyx.storage.staging.interface import Token as Token
from onyx.telemetry.interface import NULL_TASK, TaskMetrics

if TYPE_CHECKING:  # clients and the operator read options of plugins, and need no Arrow
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from onyx.flow.batch import Segments
    from onyx.flow.segment import Segment, SegmentFailure
    from onyx.ledger.returns import Parts
    from onyx.requests.mailboxes import MailboxRegistry
    from onyx.storage.interface import BlobStore

OtherJobState = Literal["runs", "completed", "killed", "forgotten"]
"""What became of the newest version of a job."""
MAILBOXES = OnDemand[Callable[[], "MailboxRegistry"]]("onyx.requests.mailboxes:MailboxRegistry")
Commit = Callable[[Token, int], None]
"""Called with a token and the number of segments it stands for, in the order of writing. When it
has returned, these segments count as written, even if the writer dies before it publishes them."""


class JobOutput(msgspec.Struct, frozen=True):
    """An output `files` of another job, with the versions that upgraded each other."""

    paths: Mapping[str, str]
    """Where each version that was not known writes, by its id: an absolute path or a URL."""
    state: OtherJobState
    last: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names of the last part of each writer, of each version that has sealed the output."""


class JobJournal(msgspec.Struct, frozen=True):
    """The journal of an input of another job, which keeps it."""

    jobs: tuple[str, ...]
    """The versions that upgraded each other, as far as they are known, the oldest first."""
    partitions: int | None
    """How many the newest version has that was not known; None without any."""
    state: OtherJobState


class UpgradedJob(msgspec.Struct, frozen=True):
    """The old job that a job upgrades."""

    job: JobId
    began: bool
    """Whether it has read segments, so that its outputs may have written."""


class OldJournal(msgspec.Struct, frozen=True):
    """The journal of the input of the same name in the job that a job upgrades."""

    job: JobId
    positions: tuple[int, ...]
    """How far it has processed each partition."""
    states: tuple[Any, ...]
    """The states of the cursors of these."""


def no_jobs(job: str, task: str, known: Sequence[str]) -> NoReturn:
    """For processes that are in no cluster."""
    raise UserError("there are no other jobs in this process")


class SealProgress(msgspec.Struct, frozen=True):
    """How far a long `Output.seal` is. Numbers grow during an attempt, `tasks` too."""

    tasks: int = 0
    """Pieces of work that are known of so far."""
    tasks_done: int = 0
    tasks_failed: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    seen_at: str = ""
    """The address at which Spark shows more of it; empty if nowhere."""

    @property
    def words(self) -> str:
        """For people; empty while nothing is known. Each change is written to ZooKeeper."""
        if not self.tasks:
            return ""
        percent = 100 * self.tasks_done // self.tasks
        seen = f", see {self.seen_at}" if self.seen_at else ""
        return f"{percent} % of its {self.tasks:,} Spark tasks are done{seen}"


class Cursor(msgspec.Struct, frozen=True):
    """A position of a partition from which it can be read again."""

    position: int
    state: Any = None
    """JSON value of the plugin, such as a byte offset. Stored with the frontier."""


START = Cursor(0)


def _no_store() -> BlobStore:
    raise UserError("there is no store for state in this process")


class PluginContext(msgspec.Struct, frozen=True):
    """Where a plugin runs, and what it may use of its worker."""

    job: JobId
    job_name: str
    task: TaskName
    peer: PeerId
    slot: Slot
    incarnation: GroupId
    """New for each start of a worker process. Names of staged work carry it (`Output.fence`)."""
    options: Mapping[str, Any]
    """`options` of the catalog entry."""
    batch_size: int | None
    """The batch size of the catalog entry; None: the worker finds it, and it changes."""
    clock: Clock
    resolve: Callable[[str], Callable[..., Any]]
    """`package.module:name` to a registered function; raises NameNotRegistered."""
    batch_format: Literal["dicts", "arrow"] = "dicts"
    """The batch format of the catalog entry. A reader is asked for columns only with `arrow`."""
    schema: pa.Schema | None = None
    """The schema of the catalog entry, if it has one: names and types of the columns."""
    permitted: Callable[[], bool] = lambda: True
    """False while this incarnation may have been declared dead. Publish nothing then."""
    wanted: Callable[[], bool] = lambda: True
    """False once the task is to stop. Long calls poll it and give up. Safe from any thread."""
    rights: Rights = Rights()
    """What a job may name of its worker."""
    data_dir: str = ""
    """Folder that relative paths count from; empty means the current folder."""
    spark_master: str = "local[*]"
    """Where Spark runs if neither the task nor the job says so."""
    spark: Spark = field(default_factory=Spark)
    """`spec.spark` of the job: where Spark runs if the task does not say so, and how."""
    writer: str = ""
    """Distinguishes writers of one incarnation in several processes. Letters, digits, hyphens."""
    progress: Callable[[SealProgress], None] = lambda _: None
    """Takes how far a long `seal` is. Call it in the thread that called `seal`."""
    upstream: tuple[str, ...] = ()
    """Tasks that send to this one, sorted."""
    spark_stage: str | None = None
    """The Spark stage of the catalog entry: its function, or what its query is called."""
    spark_sql: str | None = None
    """The query of the catalog entry, if that is its Spark stage."""
    attempts_max: int = 3
    """How often a stage that fails is run."""
    stage_ended: Callable[[float, bool], None] = lambda seconds, ended_well: None
    """Takes how long a run of a stage took, and whether it ended well. Call it like `progress`."""
    metrics: TaskMetrics = NULL_TASK
    """Where the task counts what it does. Used in the task's thread."""
    cursors: Callable[[], Sequence[Cursor]] = tuple
    """For each partition of the task, from where it is read again at the earliest, as stored;
    empty before there are partitions. Blocks. Safe from any thread. Raises Unavailable."""
    alike: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of the other tasks of the job with the same type and plugin, by their names."""
    retry_delay: RetryDelay = DEFAULT
    """How long what has failed rests before it is tried again."""
    tracked: bool = True
    """Whether the job accounts for each segment, so that a reader learns what is processed."""
    wake: Callable[[], None] = lambda: None
    """Have the task read soon. Safe from any thread."""
    durable_store: Callable[[], BlobStore] = _no_store
    """Where the state of the cluster is kept. Blocks when first called. Safe from any thread."""
    output_of: Callable[[str, str, Sequence[str]], JobOutput] = no_jobs
    """An output of another job: of the id or name, by its task, and of versions that are known
    already, which decide. Blocks. Safe from any thread. Raises Unavailable: there is no such job
    yet; UserError: its output cannot be followed."""
    journal_of: Callable[[str, str, Sequence[str]], JobJournal | None] = no_jobs
    """The journal of an input of another job, asked for like `output_of`; None: the task is no
    input."""
    upgrades: JobId | None = None
    """The job that this one upgrades."""
    begins_after: Callable[[], OldJournal | None] = lambda: None
    """The journal of the job that this one upgrades, if this input begins anew all the same
    (`initialize`). Blocks. Safe from any thread."""
    mailboxes: MailboxRegistry = field(default_factory=lambda: MAILBOXES.load()())
    """Where the requests of clients to this process are handed over."""
    answers: bool = False
    """Whether segments of requests may come: what an output refuses when it is written is the
    answer to a request, and ends no job."""

    @property
    def where(self) -> str:
        """Job and task as errors name them: `job 'flights', task 'read'`."""
        return f"job {self.job_name!r}, task {self.task!r}"

    def located(self, path: str) -> str:
        """A path of a job as a path of this worker. URLs are returned unchanged, but `file:///path`
        is a path. Raises UserError: the owner of the worker does not let jobs name it."""
        found = absolute(path, self.data_dir)
        if not is_remote(found) and (why := self.rights.why_not_path(found)) is not None:
            raise UserError(f"{self.where}: {why}")
        return found


@runtime_checkable
class Reader(Protocol):
    """An open partition."""

    def read(self, segments_max: int) -> list[Segment]:
        """The next segments, at most `segments_max`; empty when there are none now. Their positions
        continue from the position at which the reader was opened.

        Raises Unavailable when they cannot be read now, UserError when they never can.
        """
        ...

    def exhausted(self) -> bool:
        """True when everything was read and nothing will ever follow."""
        ...

    def cursor(self, position: int) -> Cursor:
        """The nearest known position at or before `position`. Later calls never ask for a smaller
        position, so the reader may forget older ones. It is asked with each frontier that is saved:
        a source that has to be told what is processed hears that here."""
        ...

    def close(self) -> None:
        """Release the partition; nothing is read afterwards."""
        ...

    def obstacle(self) -> str:
        """Why nothing new comes, if the reader knows: shown while the task does not advance. Safe
        from any thread."""
        return ""


@runtime_checkable
class ColumnsReader(Reader, Protocol):
    """A reader that can read columns."""

    def read_columns(self, segments_max: int) -> pa.RecordBatch | list[Segment]:
        """The segments as `Reader.read`, but as a record batch, row i being the i-th of these
        segments. A list of dicts is for segments that columns cannot hold, such as one in place of
        a bad record, and for none now. What does not fit the entry's schema may be left to the
        engine in such a list. `read` and `read_columns` are never both called on one reader.
        """
        ...

    def ready(self) -> int:
        """How many segments are decoded and wait to be read: they are read in one go, however often
        they change between columns and dicts."""
        return 0


class Around:
    """A reader of Onyx around that of a plugin, which may have methods of other protocols."""

    beneath: Any


@runtime_checkable
class Input(Protocol):
    """A source."""

    cooperative: bool
    """True if `read` never blocks; otherwise the task gets a thread of its own."""

    examined: bool = False
    """True promises that every segment can be sent to another process (`codec.kinds`): then the
    engine does not look at each again."""

    wakes: bool = False
    """True promises that `PluginContext.wake` is called whenever something has come to be read:
    then the engine asks less often whether there is."""

    def partitions(self) -> Sequence[str]:
        """Names of the source's partitions, the same on every peer. Called once a job: the
        answer of the first peer is registered through the log and holds for all peers."""
        ...

    def open(self, partition: str, cursor: Cursor) -> Reader:
        """A reader whose next segment is at `cursor.position`. Also used to read again, beside an
        open reader, what has to be replayed."""
        ...

    def close(self) -> None:
        """Leave the task; all readers are closed by then."""
        ...

    def column_types(self) -> Mapping[str, pa.DataType]:
        """The types of the columns that the input gives, where it has learned them: a dict that has
        others has failed."""
        return {}

    def describe(self, partition: str, position: int) -> str:
        """Names a record in errors."""
        return f"partition {partition}, position {position}"


@runtime_checkable
class SnapshotInput(Protocol):
    """The method that an input has in addition if it makes what it reads, so that a job that
    upgrades another one goes on in what that has made."""

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Called before `partitions` on the peer that calls that, as
        `OneResultOutput.upgrade` is."""
        ...


class Behind(msgspec.Struct, frozen=True):
    """What a source has of one partition from a cursor on. None: it does not say."""

    segments: int | None = None
    bytes: int | None = None
    waiting: int | None = None
    """Segments that this process has and has not read yet, or what waits besides."""
    bytes_done: int | None = None
    """Bytes before the cursor, where `bytes` are known: how many segments these are is estimated
    by them."""


@runtime_checkable
class MeasuredInput(Protocol):
    """The method that an input has in addition if it knows how much there is to be read: how far
    the job is behind."""

    def behind(self, cursors: Mapping[str, Cursor]) -> Mapping[str, Behind]:
        """For each of these open partitions what there is from the cursor on: it is the last one
        that was stored, so all before it is processed. Called every few seconds on a thread of its
        own, beside all other calls, and may block. A partition of which nothing is known is left
        out. Raises Unavailable: not now; others of Onyx's errors: never."""
        ...


@runtime_checkable
class StartingInput(Protocol):
    """The method that an input of Onyx has in addition if a new job may begin elsewhere than at the
    first position (`plugins.starting`)."""

    def start(self, partition: str) -> Cursor | None:
        """Where a partition is read first; None if nothing of it is read. What comes is stored, so
        it may depend on the moment. Raises as `Input.open`."""
        ...


@runtime_checkable
class Output(Protocol):
    """A sink."""

    cooperative: bool
    """True if no method blocks; otherwise the task gets a thread of its own."""

    def write(self, segments: list[Segment]) -> None:
        """Take segments. They may stay in memory or staged until they are flushed.

        Raises:
            Unavailable: not now; the same segments come again.
            OutputFailed: what was taken before cannot be made durable, or nothing can be written.
                This ends the job, as does what the other methods raise.
            Exception: some of them can never be written. None of them was taken: those of requests
                come again one by one, and what fails then is the answer to a request.
        """
        ...

    def durable(self) -> int:
        """How many of the segments ever written to this instance survive a crash of the process and
        a loss of power, counted in the order of writing. Never decreases."""
        ...

    def flush(self) -> None:
        """Make durable and publish what was written, now if possible."""
        ...

    def tick(self) -> None:
        """Called between batches and when idle: roll by time."""
        ...

    def fence(self, live: Sequence[GroupId]) -> None:
        """The allocation changed. `live` are the incarnations that may still publish. Make it
        impossible for every other incarnation to publish what it staged for this task."""
        ...

    def seal(self) -> None:
        """All input of the job is processed and durable. Called on one elected peer of the task
        before the job completes, and on another one if that peer dies. So it must be idempotent."""
        ...

    def close(self) -> None:
        """Leave the task. What is not durable may be dropped: it will be replayed."""
        ...


@runtime_checkable
class ColumnsOutput(Protocol):
    """The method that an output has in addition if it can write columns. It is called in turn with
    `write`: a task may get batches of both kinds."""

    def write_columns(self, columns: pa.RecordBatch) -> None:
        """Writes as `Output.write`, for the rows of a record batch; each counts as a segment."""
        ...


@runtime_checkable
class TransactionalOutput(Protocol):
    """The methods that an output has in addition for exactly-once."""

    def begin(self, commit: Commit) -> None:
        """A new allocation version: drop what is not committed; it will be replayed. From now on
        call `commit` before anything is published. It may raise Unavailable (repeat it later, with
        the same token) and Fenced (another incarnation has the task)."""
        ...

    def finish(self, token: Token) -> None:
        """Publish what this writer or another one committed. Idempotent, and safe when several
        do it at once. Raises like `write`."""
        ...


@runtime_checkable
class StagingOutput(TransactionalOutput, Protocol):
    """The methods that an output has in addition if it can write in other processes than the one
    that publishes."""

    def stage(self, keep: Commit) -> None:
        """From now on publish nothing: what `keep` has got is durable, and whoever has the token
        publishes it with `finish`. Called once, before `write`."""
        ...

    def sweep(self) -> None:
        """Everything that is to be published has been: remove what writers of this incarnation
        left staged whose `PluginContext.writer` begins like this one's. They have ended. Raises
        like `write`."""
        ...


@runtime_checkable
class OneResultOutput(Protocol):
    """The method that an output has in addition if it makes one result of the parts of all versions
    of a job (`spec.upgrade`)."""

    def upgrade(self, old: Callable[[], UpgradedJob | None]) -> None:
        """Called on every peer before it is ready, from a thread that may block: make sure that the
        result will hold the parts of the old job and of those before it. `old` returns the old job,
        or None where this output begins anew. Call it only while nothing is recorded yet, because
        `onyx gc` forgets jobs that have ended. Idempotent, and safe when several peers do it at
        once. Raises like `write`."""
        ...


@runtime_checkable
class AckedReader(Protocol):
    """The method that a reader has in addition if its source wants to know what is processed."""

    def acked(self, positions: NDArray[np.uint64]) -> None:
        """The trees of these positions, which rise, have become complete; each is named once, but
        not those that `cursor` has passed. Called between two reads."""
        ...

    def returned(self, position: int, parts: Parts) -> None:
        """What functions give back for the tree of a position, and what is said of it
        (`ledger.outcomes`), before it is complete."""
        ...

    def given_up(self, positions: NDArray[np.uint64]) -> None:
        """These positions, which rise, have failed or were lost, and are not read again."""
        ...

    def settled(self, position: int) -> int:
        """How far the frontier may go, of a position that it could go to: not beyond what has
        failed until that is durable, or the next owner would take it for processed."""
        ...

    def sent_again(self, positions: NDArray[np.uint64]) -> None:
        """These positions, which rise, are sent again: whoever waits for them still does."""
        ...

    def awaited(self, position: int) -> bool:
        """Whether somebody waits for something all of which is before this position, each time
        once: outputs then make durable what they hold."""
        ...


class Unanswered:
    """The part of an `AckedReader` whose source gives no answers."""

    def returned(self, position: int, parts: Parts) -> None:
        """The source takes no values."""

    def given_up(self, positions: NDArray[np.uint64]) -> None:
        """The source does not hear of them."""

    def settled(self, position: int) -> int:
        """No limit: nothing is to be durable before."""
        return position

    def sent_again(self, positions: NDArray[np.uint64]) -> None:
        """No request waits for them."""

    def awaited(self, position: int) -> bool:
        """No request waits."""
        return False


@runtime_checkable
class DrainingReader(Protocol):
    """The method that a reader has in addition if its source can be closed."""

    def drain(self) -> int | None:
        """Take nothing new any more. Returns the position behind the last one that was taken and
        has to be processed before the job ends; None while that is not known: ask again."""
        ...


@runtime_checkable
class OwningInput(Protocol):
    """The method that an input has in addition if only the owner of a partition may read it."""

    def allocate(self, version: AllocationVersion) -> None:
        """Partitions that are opened from now on belong to this peer in this allocation version of
        the job."""
        ...


class RefusedSegments(NamedTuple):
    """Segments that an output had taken, and finds that it can never write."""

    first: int
    """How many were written to the instance before them, as `Output.durable` counts."""
    segments: int
    error: UserError
    kept: bool
    """Whether the output keeps them as dead letters, so that nobody has to mind."""


@runtime_checkable
class RefusingOutput(Protocol):
    """The method that an output has in addition if it learns only after `write` that others take
    some segments and refuse some, as a server does. The task decides what that means: the answer to
    a request, or the end of the job."""

    def take_refused(self) -> list[RefusedSegments]:
        """What has been refused since the last call. `Output.durable` counts such segments when
        they are nobody's any more, and not before they are in what this returns."""
        ...


@runtime_checkable
class StageOutput(Protocol):
    """What the output half of a task with a Spark stage has in addition. Its `seal` says that
    nothing more comes; what the stage makes is read by the input half."""

    doing: str
    """What the stage does now, in words; empty if it does not run. Read by any thread."""

    def choose(self, upstream: str) -> None:
        """What is written from now on comes from this task."""
        ...

    def misfits(self, segments: Segments) -> list[SegmentFailure]:
        """The segments of the chosen task that no DataFrame of the stage can have beside those that
        came before, by index."""
        ...

    def lead(self, leads: bool) -> None:
        """Whether this peer of the task is the one that runs the stage. Asked for in each
        allocation version; two peers may believe it for a while."""
        ...


@runtime_checkable
class FollowedOutput(Protocol):
    """The method that an output has in addition if other jobs follow what it publishes."""

    def last_parts(self) -> Sequence[str]:
        """The name of the last part of each writer of the task. Called after `seal`, when all is
        published. Raises like `Output.write`."""
        ...
