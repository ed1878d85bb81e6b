"""What the tasks of one incarnation may ask of their process: `task.services.Services`, for real.

Any thread of a task may call. Nothing here blocks but opening the state store.

What killed a job is stored beside the log, where every client finds it. The store of state is
opened when the first task asks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from onyx.errors import OnyxError
from onyx.ids import JobId, PeerId
from onyx.log import job_documents
from onyx.log.append_queue import check_command
from onyx.peer.events import Propose
from onyx.peer.life import Life
from onyx.plugins.registry import build_input, build_output
from onyx.replica.command import Command
from onyx.replica.state import Replica
from onyx.settings import Settings
from onyx.spark.child.request import StageRunner
from onyx.spark.child.runner import run_in_child
from onyx.spark.driver.process import QueryProcess
from onyx.state.opening import open_store, state_location
from onyx.storage.interface import BlobStore
from onyx.storage.memory import MemoryBlobStore
from onyx.tables.shared import SharedTables


class StateStores:
    """The stores of one incarnation. Any thread of a task may ask."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._durable: BlobStore | None = None
        self._memory = MemoryBlobStore()
        self._lock = threading.Lock()

    def store(self, durable: bool) -> BlobStore:
        """The store that other processes find, or the one of this process only.

        Raises:
            UserError: it cannot be opened.
        """
        if not durable:
            return self._memory
        # Opened under the lock: two tasks that start together would open it twice.
        with self._lock:
            if self._durable is None:
                location = state_location(self._settings)
                self._durable = open_store(location, self._settings.state.group_access)
            return self._durable


logger = logging.getLogger("onyx.peer")


class ExceptionReports:
    """The reports of one incarnation. Any thread of a task may call."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def store(self, job: JobId, report: Mapping[str, Any]) -> Future[None]:
        """Store what killed a job; the first report wins."""
        task, phase, detail = report["task"], report["phase"], report["detail"]
        if self._life.context.settings.telemetry.log_failures:
            logger.error("job %s is killed: task %s, %s: %s", job, task, phase, detail)

        def store() -> None:
            path = job_documents.exception(job)
            try:
                self._life.log.put_document(path, msgspec.json.encode(report), None)
            except OnyxError as error:
                logger.error("what killed job %s could not be stored: %s; %s", job, error, detail)

        return self._life.background.run(store)


class TaskServices:
    """Implements `task.services.Services`."""

    def __init__(self, life: Life, replica: Callable[[], Replica]) -> None:
        """`replica` gives the newest replica."""
        context = life.context
        self.settings = context.settings
        self.clock = context.clock
        self.recorder = context.recording
        self.mailboxes = life.mailboxes
        self.log = life.log
        self.transport = life.transport
        self.permitted = life.lease.permitted
        self.background = life.background.run
        self.aside = life.background.aside
        self.tables = SharedTables(life.background.aside, context.clock)
        self.replica = replica
        self.resolve = context.resolver.resolve
        self.restart_peer = life.replace_peer
        self.build_input = build_input
        self.build_output = build_output
        self.stage_runner: StageRunner = run_in_child
        self.start_query = QueryProcess
        self.state_store = StateStores(context.settings).store
        self.metrics = life.telemetry.of_task
        self.store_exception = ExceptionReports(life).store
        self._life = life

    def propose(self, peer: PeerId, command: Command) -> None:
        """Write to the log on behalf of a peer of this group, while it belongs to the cluster. The
        size is checked here, where the error is the task's: raised on the group's thread it would
        end all tasks."""
        check_command(command, self.log.group, self.settings.log.entry_bytes_max)
        self._life.events.post(Propose(peer, command))

    def fn_params(self, task: str) -> Sequence[Any]:
        """Leading arguments of the task's function that the worker was started with."""
        return self.settings.fn_params.get(task, ())
