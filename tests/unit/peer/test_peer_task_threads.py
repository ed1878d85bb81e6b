"""Ending the loops of an incarnation: tasks that can end do, and the others are not waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.support.patience import WAIT_S

from onyx.peer.work import task_threads
from onyx.peer.work.task_threads import TaskLoop, TaskThreads
from onyx.task.table import StepOutcome


class Tasklet:
    """Goes on until it is ordered to end; then says on which thread."""

    woken = False

    def __init__(self, reaction: Callable[[], StepOutcome] = lambda: StepOutcome.DONE) -> None:
        self.ordered = False
        self.seen = threading.Event()
        self.ended_on = ""
        self._reaction = reaction

    def advance(self) -> StepOutcome:
        self.seen.set()
        if not self.ordered:
            return StepOutcome.WAITING
        return self._reaction()

    def done(self) -> None:
        self.ended_on = threading.current_thread().name


def threads(
    timeout_s: float, crashed: Callable[[BaseException], None] = lambda _: None
) -> TaskThreads:
    made = TaskThreads("g", timeout_s, crashed)
    made.start()
    return made


def test_tasklets_that_may_end_have_ended_when_it_stops() -> None:
    running = threads(WAIT_S)
    shared, alone = Tasklet(), Tasklet()
    running.run_shared(shared, shared.done, 0)
    running.run_alone("task", alone, alone.done)
    assert shared.seen.wait(WAIT_S)
    shared.ordered = alone.ordered = True
    running.stop()
    assert (shared.ended_on, alone.ended_on) == ("onyx-tasks-g", "onyx-task")


def test_a_tasklet_that_moves_between_threads_is_waited_for() -> None:
    running = threads(WAIT_S)
    tasklet = Tasklet()
    running.run_alone("task", tasklet, lambda: running.run_shared(tasklet, tasklet.done, 0))
    assert tasklet.seen.wait(WAIT_S)
    tasklet.ordered = True
    running.stop()
    assert tasklet.ended_on == "onyx-tasks-g"


def test_one_that_hangs_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    running = threads(timeout_s=0.01)
    release = threading.Event()
    hanging = Tasklet(lambda: StepOutcome.DONE if release.wait(WAIT_S) else StepOutcome.WAITING)
    running.run_alone("hanging", hanging, hanging.done)
    assert hanging.seen.wait(WAIT_S)
    hanging.ordered = True
    running.drain()
    running.stop()
    release.set()
    assert "did not stop" in caplog.text


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("alone", [False, True])
def test_a_thread_that_ends_says_so_and_nobody_is_waited_for(
    error: type[BaseException], alone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def ends() -> StepOutcome:
        raise error

    crashes: list[BaseException] = []
    running = threads(WAIT_S * 100, crashes.append)
    tasklet = Tasklet(ends)
    tasklet.ordered = True
    if alone:
        running.run_alone("task", tasklet, tasklet.done)
    else:
        running.run_shared(tasklet, tasklet.done, 0)
    running.stop()
    assert [type(each) for each in crashes] == [error]
    assert "a bug in Onyx" in caplog.text


class Waits(threading.Event):
    """Does not wait, and ends the loop after some times."""

    def __init__(self, loop: TaskLoop) -> None:
        super().__init__()
        self.asked_s: list[float | None] = []
        self._loop = loop

    def wait(self, timeout: float | None = None) -> bool:
        self.asked_s.append(timeout)
        if len(self.asked_s) == 3:
            self._loop.stop(0.0)
        return False


@pytest.mark.parametrize(
    ("woken", "first_s"),
    [
        ([True], task_threads.IDLE_WAIT_WOKEN_S),
        ([True, False], task_threads.IDLE_WAIT_FIRST_S),
        ([], task_threads.IDLE_WAIT_WOKEN_S),
    ],
)
def test_a_loop_looks_seldom_where_everybody_is_woken(woken: list[bool], first_s: float) -> None:
    loop = TaskLoop("loop", lambda _: None)
    for each in woken:
        tasklet = Tasklet()
        tasklet.woken = each
        loop.add(tasklet, tasklet.done, 0)
    waits = loop._event = Waits(loop)
    loop._go_round()
    growth = task_threads.IDLE_WAIT_GROWTH
    assert waits.asked_s == pytest.approx([first_s, first_s * growth, first_s * growth**2])
