"""What the driver of a job on Spark does in each of its phases, and where kinds of tasks differ."""

from __future__ import annotations

from collections.abc import Callable

from onyx.errors import Unavailable
from onyx.ids import JobId, PeerId, TaskName
from onyx.program.failure import Failure
from onyx.program.lifecycles import Verdict
from onyx.program.phases import Phase
from onyx.task.driver import phases, start
from onyx.task.driver.task import DriverTask
from onyx.task.parts import signal_ready
from onyx.task.services import Services
from onyx.task.table import TABLES, Answer, TaskKind
from onyx.task.task import Behaviour, Message, Ready, Rewire, Seal, StateQuestion

RUN: dict[Phase, Callable[[DriverTask], Answer]] = {
    Phase.LOAD_JOB: start.load_job,
    Phase.WIRE: start.take_wiring,
    Phase.RECOVER: lambda t: start.register(t.runtime),
    Phase.SIGNAL_READY: lambda t: signal_ready(t.assignment, t.member.version),
    Phase.AWAIT_READY: lambda t: start.await_ready(t.runtime, t.member, t.status),
    Phase.TAKE_OVER: lambda t: phases.take_over(t.runtime),
    Phase.RUN_QUERY: lambda t: phases.run_query(t.runtime, t.status),
    Phase.PUBLISH: lambda t: phases.publish(t.runtime, t.status),
    Phase.COMPLETE: lambda t: phases.complete(t.runtime, t.member, t.sealing),
}
assert list(RUN) == [row.phase for row in TABLES[TaskKind.DRIVER]], "every row has a function"


def _receive(task: DriverTask, message: Message) -> None:
    version = task.version
    match message:
        case Rewire(newer) if version is not None and version < newer:
            task.assignment.background.forget()
            task.status.superseded_s = None
            task.phase = Phase.WIRE
        case Ready(ready) if version == ready:
            task.member.ready = True
        case Seal():
            task.sealing.wanted = True
        case StateQuestion():
            if message.answer.set_running_or_notify_cancel():
                none = f"task {task.name} drives a job on Spark and has no windows itself"
                message.answer.set_exception(Unavailable(none))
        case _:
            pass  # of another version, or before the first wiring: it means nothing here


def _verdict(task: DriverTask, failure: Failure) -> Verdict:
    """Its job has no lifecycles, and what is worth another attempt was tried again."""
    return "kill"


def _closers(task: DriverTask, reason: str) -> list[Callable[[], object]]:
    return [] if task.job is None else [task.runtime.driver.close]


DRIVING = Behaviour(RUN, _receive, lambda task: False, _verdict, _closers)


def new_driver(
    services: Services, peer: PeerId, job: JobId, task: TaskName, wake: Callable[[], None]
) -> DriverTask:
    """A driver that is yet to load its job."""
    return DriverTask(DRIVING, services, peer, job, task, TaskKind.DRIVER, wake)
