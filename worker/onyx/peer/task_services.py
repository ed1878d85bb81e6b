"""What the tasks of one incarnation may ask of their process: `task.services.Services`, for real.

Any thread of a task may call. Nothing here blocks but opening the state store.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec

from onyx.codec.entries import encode_entry
from onyx.errors import OnyxError
from onyx.ids import JobId, PeerId, TaskName
from onyx.log import job_documents
from onyx.log.append_queue import check_size
from onyx.log.interface import GroupLog
from onyx.model.job import Job
from onyx.peer.background import Background, aside
from onyx.peer.context import Context
from onyx.peer.events import Event, Propose
from onyx.peer.group_telemetry import GroupTelemetry
from onyx.peer.lease import Lease
from onyx.plugins.protocol import Input, Output, PluginContext
from onyx.plugins.registry import build_input, build_output
from onyx.recorder import NoRecorder, Recording
from onyx.replica.command import Command
from onyx.replica.state import Replica
from onyx.spark.child.request import StageRunner
from onyx.spark.child.runner import run_in_child
from onyx.spark.driver.process import QueryProcess
from onyx.spark.driver.request import QueryRequest
from onyx.spark.driver.running import RunningQuery
from onyx.state.opening import open_store, state_location
from onyx.storage.interface import BlobStore
from onyx.storage.memory import MemoryBlobStore
from onyx.telemetry.interface import TaskMetrics
from onyx.transport.interface import Transport

logger = logging.getLogger("onyx.peer")
T = TypeVar("T")

SEQUENCE_MAX = 2**63 - 1
"""The longest sequence number of a writer, for the size of an entry before it has one."""


class TaskServices:
    """Implements `task.services.Services`."""

    def __init__(
        self,
        context: Context,
        log: GroupLog,
        transport: Transport,
        lease: Lease,
        background: Background,
        telemetry: GroupTelemetry,
        post: Callable[[Event], None],
        replica: Callable[[], Replica],
    ) -> None:
        """`post` queues an event of the group, `replica` gives the newest replica."""
        self.settings = context.settings
        self.clock = context.clock
        self.recorder: Recording = NoRecorder() if context.recorder is None else context.recorder
        self.log = log
        self.transport = transport
        self.permitted = lease.permitted
        self.background = background.run
        self.stage_runner: StageRunner = run_in_child
        self.aside = aside
        self.replica = replica
        self.resolve = context.resolver.resolve
        self.restart_peer = context.replace_peer
        self._context = context
        self._telemetry = telemetry
        self._post = post
        self._store: BlobStore | None = None
        self._memory_store = MemoryBlobStore()
        self._store_lock = threading.Lock()

    def propose(self, peer: PeerId, command: Command) -> None:
        """Write to the log on behalf of a peer of this group, while it belongs to the cluster. The
        size is checked here, where the error is the task's: raised on the group's thread it would
        end all tasks."""
        payload = encode_entry(command, self.log.group, SEQUENCE_MAX)
        check_size(command, payload, self.settings.log.entry_bytes_max)
        self._post(Propose(peer, command))

    def start_query(self, request: QueryRequest, wake: Callable[[], None]) -> RunningQuery:
        """Start the process that runs a job on Spark."""
        return QueryProcess(request, wake)

    def state_store(self, durable: bool) -> BlobStore:
        """Where the state of windowed tasks is kept: to be found by other processes, or only in
        this one."""
        if not durable:
            return self._memory_store
        with self._store_lock:
            if self._store is None:
                self._store = open_store(
                    state_location(self.settings), self.settings.state.group_access
                )
            return self._store

    def build_input(self, plugin: str, context: PluginContext) -> Input:
        """A new instance of an input plugin."""
        return build_input(plugin, context)

    def build_output(self, plugin: str, context: PluginContext) -> Output:
        """A new instance of an output plugin."""
        return build_output(plugin, context)

    def fn_params(self, task: str) -> Sequence[Any]:
        """Leading arguments of the task's function that the worker was started with."""
        return self.settings.fn_params.get(task, ())

    def metrics(self, job_id: JobId, job: Job, task: TaskName) -> TaskMetrics:
        """Where a peer that begins to work on a task reports what it does."""
        self._telemetry.job_started(job_id, job.name, job.guarantee)
        metrics, recorder = self._context.metrics.task(job.name, task), self._context.recorder
        return metrics if recorder is None else recorder.counts.metrics(job_id, task, metrics)

    def store_exception(self, job: JobId, report: Mapping[str, Any]) -> Future[None]:
        """Store what killed a job; the first report wins."""
        task, phase, detail = report["task"], report["phase"], report["detail"]
        if self.settings.telemetry.log_failures:
            logger.error("job %s is killed: task %s, %s: %s", job, task, phase, detail)

        def store() -> None:
            path = job_documents.exception(job)
            try:
                self.log.put_document(path, msgspec.json.encode(report), None)
            except OnyxError as error:
                logger.error("what killed job %s could not be stored: %s; %s", job, error, detail)

        return self.background(store)
