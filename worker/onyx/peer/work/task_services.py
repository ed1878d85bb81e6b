"""What the tasks of one incarnation may ask of their process: `task.services.Services`, for real.

Any thread of a task may call. Nothing here blocks but opening the state store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onyx.ids import PeerId
from onyx.log.append_queue import check_command
from onyx.peer.events import Propose
from onyx.peer.life import Life
from onyx.peer.work.exception_reports import ExceptionReports
from onyx.peer.work.state_stores import StateStores
from onyx.plugins.registry import build_input, build_output
from onyx.replica.command import Command
from onyx.replica.state import Replica
from onyx.spark.child.request import StageRunner
from onyx.spark.child.runner import run_in_child
from onyx.spark.driver.process import QueryProcess
from onyx.tables.shared import SharedTables


class TaskServices:
    """Implements `task.services.Services`."""

    def __init__(self, life: Life, replica: Callable[[], Replica]) -> None:
        """`replica` gives the newest replica."""
        context = life.context
        self.settings = context.settings
        self.clock = context.clock
        self.recorder = context.recording
        self.desk = life.desk
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
