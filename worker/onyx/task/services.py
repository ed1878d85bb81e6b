"""What a task may ask of the process it runs in: the seam between `task/` and `peer/`.

Everything slow (ZooKeeper reads and writes) is done in the background and polled, because a task
step never blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from onyx.base.seams import Clock
from onyx.ids import JobId, PeerId, TaskName
from onyx.log.interface import LogReader
from onyx.model.job import Job
from onyx.plugins.protocol import Input, Output, PluginContext
from onyx.replica.command import Command
from onyx.replica.state import Replica
from onyx.requests.mailboxes import MailboxRegistry
from onyx.settings import Settings
from onyx.storage.interface import BlobStore
from onyx.tables.shared import SharedTables
from onyx.telemetry.interface import TaskMetrics
from onyx.telemetry.recorder import Recording
from onyx.transport.interface import Transport

if TYPE_CHECKING:  # few tasks are of Spark
    from onyx.spark.child.request import StageRunner
    from onyx.spark.driver.request import QueryRequest, RunningQuery

T = TypeVar("T")


class Services(Protocol):
    """The process, as its tasks see it."""

    settings: Settings
    clock: Clock
    transport: Transport
    recorder: Recording
    mailboxes: MailboxRegistry
    """Where requests of clients to this process are handed over."""
    tables: SharedTables
    """The tables that tasks of this process look up."""

    @property
    def log(self) -> LogReader:
        """Chunks and documents beside the log."""
        ...

    @property
    def stage_runner(self) -> StageRunner:
        """Runs stages of Spark."""
        ...

    def replica(self) -> Replica:
        """The newest replica of this process."""
        ...

    def propose(self, peer: PeerId, command: Command) -> None:
        """Write to the log on behalf of a peer of this group, while it belongs to the cluster.

        Raises UserError when the command cannot be written, because it is too large for example.
        """
        ...

    def permitted(self) -> bool:
        """Whether this incarnation may act: its session was confirmed a short time ago."""
        ...

    def background(self, work: Callable[[], T]) -> Future[T]:
        """Run something that may block, on a thread of its own."""
        ...

    def aside(self, work: Callable[[], T]) -> Future[T]:
        """Run something that may take hours, on a thread of its own that ends with the process."""
        ...

    def resolve(self, name: str) -> Callable[..., Any]:
        """The registered function of this name. Raises NameNotRegistered."""
        ...

    def build_input(self, plugin: str, context: PluginContext) -> Input:
        """A new instance of an input plugin."""
        ...

    def build_output(self, plugin: str, context: PluginContext) -> Output:
        """A new instance of an output plugin."""
        ...

    def start_query(self, request: QueryRequest, wake: Callable[[], None]) -> RunningQuery:
        """Start the process that runs a job on Spark. Raises SettingsError and Unavailable."""
        ...

    def state_store(self, durable: bool) -> BlobStore:
        """Where the state of windowed tasks is kept: to be found by other processes, or only in
        this one. Raises UserError when it cannot be opened."""
        ...

    def fn_params(self, task: str) -> Sequence[Any]:
        """Leading arguments of the task's function that the worker was started with."""
        ...

    def metrics(self, job_id: JobId, job: Job, task: TaskName) -> TaskMetrics:
        """Where a peer that begins to work on a task reports what it does."""
        ...

    def restart_peer(self, peer: PeerId) -> None:
        """Give up this virtual peer and start a new one in its place."""
        ...

    def store_exception(self, job: JobId, report: Mapping[str, Any]) -> Future[None]:
        """Store what killed a job beside the log, in the background."""
        ...
