"""Threads that advance tasks: one shared by all that never block, and one for each of the others.

A tasklet is anything with `advance() -> Progress`. The shared thread advances all its tasklets in
turn. It sleeps only when none could advance, until something wakes it; a wake while it runs is
remembered, so none is lost. Tasklets stand in the order of their workflow: in one round a batch
passes all tasks while it is still in the processor's cache.

A tasklet raises only when Onyx has a bug. Then the group leaves and the process ends, to be
restarted by its supervisor. A thread that ended silently would leave a member that is alive and
does nothing, and every later job would wait for it. Rejected: joining again in the same process,
because a bug may have left its memory in any state.

Only the built plugin knows whether its task may block, so inputs and outputs start alone and move
to the shared thread if they can; functions start shared and move out if the catalog says so.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import msgspec

from onyx.ids import TaskName
from onyx.program.failure import frames_of
from onyx.program.phases import Phase
from onyx.reports.stalls import StackFrame
from onyx.task import machine
from onyx.task.diagnosis import BUSY_S
from onyx.task.table import ADVANCED, DONE, StepOutcome, TaskKind
from onyx.task.task import Task
from onyx.telemetry.logs import locate, location

logger = logging.getLogger("onyx.peer")

STEP_PATIENCE_S = 1.0
"""For the current step of a loop, once its tasklets have been waited for."""

IDLE_WAIT_FIRST_S = 0.001

IDLE_WAIT_WOKEN_S = 0.02
"""Where everybody is woken for what he waits for. Looking for nothing costs half of a step with a
batch, and of those that a request wakes, each had looked three times before the next request."""

IDLE_WAIT_GROWTH = 1.5

IDLE_WAIT_MAX_S = 0.1
"""An idle loop looks again even if nothing woke it (sources that have to be asked): after half of
the time that it has been idle, and after this at most."""


class Tasklet(Protocol):
    """Something that is advanced in small steps, such as a task or an acker."""

    @property
    def woken(self) -> bool:
        """Whether it is woken for what it waits for now, but for what may come late."""
        ...

    def advance(self) -> StepOutcome:
        """One step. Must not block on the shared thread."""
        ...


class TaskLoop:
    """A thread that advances tasklets in turn."""

    def __init__(
        self,
        name: str,
        crashed: Callable[[BaseException], None],
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`moved` is called in each round: a liveness probe wants to know."""
        self._event = threading.Event()
        self._crashed = crashed
        self._moved = moved
        self._tasklets: tuple[_ThreadEntry, ...] = ()
        self._lock = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def thread(self) -> int | None:
        """Identifies the thread while it runs."""
        return self._thread.ident

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Advance the tasklets again soon; from any thread."""
        if not self._event.is_set():  # the look costs a tenth of setting it again
            self._event.set()

    def add(self, tasklet: Tasklet, done: Callable[[], None], order: int) -> None:
        """Advance a tasklet from now on, after those of lower `order`; `done` is called on the
        loop's thread when it is DONE."""
        with self._lock:
            entries = (*self._tasklets, _ThreadEntry(order, tasklet, done))
            self._tasklets = tuple(sorted(entries, key=lambda entry: entry.order))
        self.wake()

    def stop(self, timeout_s: float) -> bool:
        """End the thread after its current step; False when it does not come back in time."""
        self._stopping = True
        self.wake()
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._go_round()
        except BaseException as error:
            self._crashed(error)  # first: whatever becomes of the line, the process ends
            logger.exception("a bug in Onyx: please report it")

    def _go_round(self) -> None:
        wait_s = IDLE_WAIT_FIRST_S
        while not self._stopping:
            if self._event.is_set():
                self._event.clear()
            self._moved()
            if self._round():
                wait_s = IDLE_WAIT_FIRST_S
                continue
            if wait_s < IDLE_WAIT_WOKEN_S and all(each.tasklet.woken for each in self._tasklets):
                wait_s = IDLE_WAIT_WOKEN_S
            if self._event.wait(wait_s):
                wait_s = IDLE_WAIT_FIRST_S
            else:
                wait_s = min(wait_s * IDLE_WAIT_GROWTH, IDLE_WAIT_MAX_S)

    def _round(self) -> bool:
        advanced = False
        for entry in self._tasklets:
            progress = entry.tasklet.advance()
            if progress is ADVANCED:
                advanced = True
            elif progress is DONE:
                with self._lock:
                    self._tasklets = tuple(each for each in self._tasklets if each is not entry)
                entry.done()
        return advanced


class _ThreadEntry(msgspec.Struct, frozen=True, eq=False):
    """A tasklet in a loop."""

    order: int
    tasklet: Tasklet
    done: Callable[[], None]


class TaskThreads:
    """All loops of one incarnation."""

    def __init__(
        self,
        name: str,
        stop_timeout_s: float,
        crashed: Callable[[BaseException], None],
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """`crashed` is called on the thread of a loop that ends because of a bug, `moved` on the
        cooperative thread in each of its rounds."""
        self._stop_timeout_s = stop_timeout_s
        self._crashed = crashed
        self._shared = TaskLoop(f"onyx-tasks-{name}", self._crash, moved)
        self._own: list[TaskLoop] = []
        self._changed = threading.Condition()
        self._tasklets = 0
        """Tasklets that have not ended; one that moves between loops counts all the time."""
        self._given_up = False
        """Tasklets that have not ended will not: a loop has crashed, or one hangs."""

    def start(self) -> None:
        """Start the shared thread."""
        self._shared.start()

    @property
    def shared_thread(self) -> int | None:
        """Identifies the shared thread while it runs."""
        return self._shared.thread

    def wake(self) -> None:
        """Advance all tasklets again soon."""
        self._shared.wake()
        for loop in tuple(self._own):
            loop.wake()

    def wake_shared(self) -> None:
        """Advance the tasklets on the shared thread again soon."""
        self._shared.wake()

    def run_shared(self, tasklet: Tasklet, done: Callable[[], None], order: int) -> None:
        """Advance a tasklet that never blocks, after those of lower `order`."""
        self._count(1)
        self._shared.add(tasklet, lambda: self._finished(done), order)

    def run_alone(self, name: str, tasklet: Tasklet, done: Callable[[], None]) -> TaskLoop:
        """Advance a tasklet that may block, on a thread of its own."""
        loop = TaskLoop(f"onyx-{name}", self._crash)

        def finished() -> None:
            loop.stop(0)
            with self._changed:
                self._own.remove(loop)
            self._finished(done)

        self._count(1)
        with self._changed:
            self._own.append(loop)
        loop.add(tasklet, finished, 0)
        loop.start()
        return loop

    def drain(self) -> None:
        """Wait until all tasklets have ended by themselves; one that hangs in user code is waited
        for until the time-out, and after a crash nobody is."""
        self.wake()
        with self._changed:
            self._given_up |= not self._changed.wait_for(self._nothing_left, self._stop_timeout_s)

    def stop(self) -> None:
        """End all loops. One that hangs in user code is left behind and logged."""
        self.drain()
        loops = (self._shared, *tuple(self._own))
        hanging = [loop for loop in loops if not loop.stop(STEP_PATIENCE_S)]
        if hanging:
            logger.error("a task did not stop within %.0f s", self._stop_timeout_s)

    def _nothing_left(self) -> bool:
        return not self._tasklets or self._given_up

    def _finished(self, done: Callable[[], None]) -> None:
        done()
        self._count(-1)

    def _count(self, change: int) -> None:
        with self._changed:
            self._tasklets += change
            self._changed.notify_all()

    def _crash(self, error: BaseException) -> None:
        with self._changed:
            self._given_up = True
            self._changed.notify_all()
        self._crashed(error)


# --- where a task runs --------------------------------------------------------------------------


class TaskRunner:
    """Advances one task and moves it once between loops."""

    def __init__(
        self,
        threads: TaskThreads,
        task: Task,
        order: int,
        stopped: Callable[[], None],
        about: Mapping[str, Any],
    ) -> None:
        """
        Args:
            order: the position of the task in its workflow.
            stopped: is called at its end.
            about: name and metadata of its job, which its log lines have.
        """
        self.task = task
        self._order = order
        self._threads = threads
        self._stopped = stopped
        self._loop: TaskLoop | None = None
        self._settled = False
        self._moving = False
        self._where: Mapping[str, Any] = {
            **location(),
            "job": task.job_id,
            "task": task.name,
            "peer": task.peer,
            **about,
        }

    @property
    def shared(self) -> bool:
        """Whether it runs on the thread that tasks share."""
        return self._loop is None

    @property
    def woken(self) -> bool:
        """Whether its task is woken for what that waits for now."""
        return self.task.woken

    @property
    def thread(self) -> int | None:
        """Which thread it runs on."""
        loop = self._loop
        return loop.thread if loop is not None else self._threads.shared_thread

    def start(self) -> None:
        """Begin to advance the task."""
        if self.task.kind is TaskKind.FUNCTION:
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

    def advance(self) -> StepOutcome:
        """One step of the task. See `Tasklet`."""
        locate(self._where)
        progress = machine.advance(self.task)
        if self._settled or progress is DONE or self.task.phase is Phase.LOAD_JOB:
            return progress
        return self._settle(progress)

    def _settle(self, progress: StepOutcome) -> StepOutcome:
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


def stack_of(runner: TaskRunner) -> tuple[StackFrame, ...]:
    """Where the thread of a task is now."""
    frame: Any = sys._current_frames().get(runner.thread or 0)
    return tuple(StackFrame(**each) for each in frames_of(frame))


def busiest(runners: Collection[TaskRunner], now_s: float) -> TaskName | None:
    """The task that keeps the shared thread for too long."""
    for runner in runners:
        since_s = runner.task.status.step_since_s
        if runner.shared and since_s is not None and now_s - since_s >= BUSY_S:
            return runner.task.name
    return None
