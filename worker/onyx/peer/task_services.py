"""What the tasks of one incarnation may ask of their process: `task.services.Services`, for real.

Any thread of a task may call. Nothing here blocks but opening the state store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onyx.codec.entries import encode_entry
from onyx.ids import JobId, PeerId, TaskName
from onyx.log.append_queue import check_size
from onyx.model.job import Job
from onyx.peer.background import aside
from onyx.peer.events import Propose
from onyx.peer.exception_reports import ExceptionReports
from onyx.peer.life import Life
from onyx.peer.state_stores import StateStores
from onyx.plugins.registry import build_input, build_output
from onyx.recorder import NoRecorder, Recording
from onyx.replica.command import Command
from onyx.replica.state import Replica
from onyx.spark.child.request import StageRunner
from onyx.spark.child.runner import run_in_child
from onyx.spark.driver.process import QueryProcess
from onyx.telemetry.interface import TaskMetrics

SEQUENCE_MAX = 2**63 - 1
"""The longest sequence number of a writer, for the size of an entry before it has one."""


class TaskServices:
    """Implements `task.services.Services`."""

    def __init__(self, life: Life, replica: Callable[[], Replica]) -> None:
        """`replica` gives the newest replica."""
        context = life.context
        self.settings = context.settings
        self.clock = context.clock
        self.recorder: Recording = NoRecorder() if context.recorder is None else context.recorder
        self.log = life.log
        self.transport = life.transport
        self.permitted = life.lease.permitted
        self.background = life.background.run
        self.aside = aside
        self.replica = replica
        self.resolve = context.resolver.resolve
        self.restart_peer = context.replace_peer
        self.build_input = build_input
        self.build_output = build_output
        self.stage_runner: StageRunner = run_in_child
        self.start_query = QueryProcess
        self.state_store = StateStores(context.settings).store
        self.store_exception = ExceptionReports(life).store
        self._life = life

    def propose(self, peer: PeerId, command: Command) -> None:
        """Write to the log on behalf of a peer of this group, while it belongs to the cluster. The
        size is checked here, where the error is the task's: raised on the group's thread it would
        end all tasks."""
        payload = encode_entry(command, self.log.group, SEQUENCE_MAX)
        check_size(command, payload, self.settings.log.entry_bytes_max)
        self._life.events.post(Propose(peer, command))

    def fn_params(self, task: str) -> Sequence[Any]:
        """Leading arguments of the task's function that the worker was started with."""
        return self.settings.fn_params.get(task, ())

    def metrics(self, job_id: JobId, job: Job, task: TaskName) -> TaskMetrics:
        """Where a peer that begins to work on a task reports what it does."""
        self._life.telemetry.job_started(job_id, job.name, job.guarantee)
        context = self._life.context
        metrics, recorder = context.metrics.task(job.name, task), context.recorder
        return metrics if recorder is None else recorder.counts.metrics(job_id, task, metrics)
