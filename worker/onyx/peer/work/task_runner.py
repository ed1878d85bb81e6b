"""Where a task runs: on the shared cooperative thread or on a thread of its own.

Only the built plugin knows whether its task may block, so inputs and outputs start alone and move
to the shared thread if they can; functions start shared and move out if the catalog says so.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from onyx.ids import TaskName
from onyx.peer.work.task_threads import Loop, TaskThreads
from onyx.program.exceptions import frames_of
from onyx.program.phases import Phase
from onyx.reports.stalls import Frame
from onyx.task import machine
from onyx.task.diagnosis import BUSY_S
from onyx.task.table import DONE, Kind, Progress
from onyx.task.task import Task
from onyx.telemetry.logs import locate, location

logger = logging.getLogger("onyx.peer")

METADATA_FIELDS_MAX = 16
_JOB_ID = "jobId"
"""This key of the metadata is the field `job`."""


class TaskRunner:
    """Advances one task and moves it once between loops."""

    def __init__(
        self, threads: TaskThreads, task: Task, order: int, stopped: Callable[[], None]
    ) -> None:
        """`order` is the position of the task in its workflow; `stopped` is called at its end."""
        self.task = task
        self._order = order
        self._threads = threads
        self._stopped = stopped
        self._loop: Loop | None = None
        self._settled = False
        self._moving = False
        self._where: Mapping[str, Any] = {
            **location(),
            "job": task.job_id,
            "task": task.name,
            "peer": task.peer,
        }

    @property
    def shared(self) -> bool:
        """Whether it runs on the thread that tasks share."""
        return self._loop is None

    @property
    def thread(self) -> int | None:
        """Which thread it runs on."""
        loop = self._loop
        return loop.thread if loop is not None else self._threads.shared_thread

    def start(self) -> None:
        """Begin to advance the task."""
        if self.task.kind is Kind.FUNCTION:
            self._share()
        else:
            self._separate()

    def wake(self) -> None:
        """Something happened to the task; from any thread."""
        loop = self._loop
        if loop is not None:
            loop.wake()
        else:
            self._threads.wake_shared()

    def advance(self) -> Progress:
        """One step of the task. See `Tasklet`."""
        locate(self._where)
        progress = machine.advance(self.task)
        if self._settled or progress is DONE or self.task.phase is Phase.LOAD_JOB:
            return progress
        if self.task.job is not None:
            self._where = {**self._where, **fields_of(self.task.job.metadata)}
        return self._settle(progress)

    def _settle(self, progress: Progress) -> Progress:
        if self.task.version is None:
            return progress
        self._settled = True
        shared = self._loop is None
        if self.task.cooperative == shared:
            return progress
        self._moving = True
        return DONE

    def _done(self) -> None:
        if not self._moving:
            self._stopped()
            return
        self._moving = False
        if self.task.cooperative:
            self._share()
        else:
            self._separate()

    def _share(self) -> None:
        self._loop = None
        self._threads.run_shared(self, self._done, self._order)

    def _separate(self) -> None:
        name = f"{self.task.name}-{self.task.peer}"
        self._loop = self._threads.run_alone(name, self, self._done)


def fields_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What log lines of a job's tasks have of its metadata: the first keys whose values are text,
    numbers or truth values."""
    plain = [
        (key, value)
        for key, value in metadata.items()
        if isinstance(value, str | int | float | bool) and key != _JOB_ID
    ]
    return {f"metadata.{key}": value for key, value in plain[:METADATA_FIELDS_MAX]}


def stack_of(runner: TaskRunner) -> tuple[Frame, ...]:
    """Where the thread of a task is now."""
    frame: Any = sys._current_frames().get(runner.thread or 0)
    return tuple(Frame(**each) for each in frames_of(frame))


def busiest(runners: Collection[TaskRunner], now_s: float) -> TaskName | None:
    """The task that keeps the shared thread for too long."""
    for runner in runners:
        since_s = runner.task.status.step_since_s
        if runner.shared and since_s is not None and now_s - since_s >= BUSY_S:
            return runner.task.name
    return None
