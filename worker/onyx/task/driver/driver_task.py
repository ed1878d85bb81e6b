"""The task that drives a job on Spark: no batches, no channels, and in the log the only task of its
job, which is input and output at once.

The order of its phases is its guarantee: whoever has the task first asks whether a result is
committed, and runs a query only if none is. What a query has staged is committed before it is
published, and published before the task logs that all is read and written. So a crash anywhere
leads to a phase that goes on from there (`spark.driver.committed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import field

from onyx.errors import Blocked, OnyxError, Unavailable, UserError, UserFunctionError
from onyx.ids import AllocationVersion, JobId, PeerId, TaskName
from onyx.plugins.attempts import BLOCKED_RETRY_S
from onyx.program.failure import Failure
from onyx.program.lifecycles import Verdict
from onyx.program.phases import Phase
from onyx.replica.commands.exhaust_input import ExhaustInput
from onyx.replica.commands.seal_output import SealOutput
from onyx.replica.job_events import QUERY_TAKEN_OVER, beginnings, local_event
from onyx.spark.driver.driver import Driver
from onyx.spark.driver.outputs import SealFailed
from onyx.spark.driver.request import QueryFailure, QueryReply
from onyx.task.driver.build import build_driver
from onyx.task.driver.measured import QueryInput, inputs_of, parts_of
from onyx.task.measured import MeasuredPart
from onyx.task.parts import (
    PartOfAssignment,
    Registration,
    Sealing,
    TaskStatus,
    is_allocated,
    load,
    note_ready,
    registered_alone,
    signal_ready,
)
from onyx.task.services import Services
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.task.suspects import check_task
from onyx.task.table import ADVANCED, TABLES, WAITING, Answer, TaskKind
from onyx.task.task import Behaviour, Message, Ready, Rewire, Seal, StateQuestion, Task
from onyx.telemetry.interface import TaskMetrics
from onyx.telemetry.logs import happened

QUERY_RETRY_S = 1.0
"""Before a query is run again that has failed, and not because Spark is away."""

PUBLISH_RETRY_S = 1.0
"""What cannot be published is tried again so often."""


class Membership(msgspec.Struct):
    """The part of a driver in one allocation version."""

    version: AllocationVersion
    ready: bool = False
    """All peers of the job are ready for this version."""
    exhaust_proposed: bool = False


class DriverRuntime(PartOfAssignment, frozen=True):
    """What a driver has once its job is loaded."""

    driver: Driver
    metrics: TaskMetrics
    inputs: Mapping[str, QueryInput]
    """What is measured of each input."""
    registration: Registration = field(default_factory=Registration)


class DriverTask(Task):
    """Not thread-safe except `post`."""

    runtime: DriverRuntime
    """There when its job is loaded."""
    membership: Membership | None = None
    """There when it has joined an allocation version."""

    @property
    def query(self) -> str:
        """What its query does."""
        return "" if self.job is None else self.runtime.driver.where

    @property
    def parts(self) -> Sequence[MeasuredPart]:
        """What is measured: of each task of its job, because the task that drives counts none."""
        return [] if self.job is None else parts_of(self.runtime.driver, self.runtime.inputs)

    @property
    def version(self) -> AllocationVersion | None:
        """The allocation version whose wiring it has taken; None before the first."""
        return None if self.membership is None else self.membership.version

    @property
    def member(self) -> Membership:
        """The membership of the driver, in a phase behind the wiring."""
        assert self.membership is not None, "the phase before"
        return self.membership


# --- before it drives ---------------------------------------------------------------------------


def load_job(task: DriverTask) -> Answer:
    """Read the job from the chunk store."""
    assignment = task.assignment
    check_task(assignment)
    job = load(assignment)
    if job is None:
        return WAITING
    metrics = assignment.services.metrics(assignment.job_id, job, assignment.task)
    driver = build_driver(assignment, job)
    task.runtime = DriverRuntime(assignment, driver, metrics, inputs_of(assignment, driver))
    task.job, task.metrics = job, metrics
    return ADVANCED


def take_wiring(task: DriverTask) -> Answer:
    """Join the newest version: a driver has no channels."""
    assignment = task.assignment
    if not is_allocated(assignment):
        return WAITING
    run = assignment.services.replica().run(assignment.job_id)
    task.membership = Membership(AllocationVersion(run.allocation_version))
    return ADVANCED


def register(runtime: DriverRuntime) -> Answer:
    """To the log the job is an input with one partition."""
    done = registered_alone(runtime.assignment, runtime.registration)
    return ADVANCED if done else WAITING


def await_ready(runtime: DriverRuntime, membership: Membership, status: TaskStatus) -> Answer:
    """Wait until the log says that all peers of the job are ready."""
    if not membership.ready:
        return WAITING
    note_ready(runtime.assignment, status)
    return ADVANCED


# --- the query ----------------------------------------------------------------------------------


def take_over(runtime: DriverRuntime) -> Answer:
    """Ask whether a result is committed; fence off those who might stage another one if not."""
    driver, assignment = runtime.driver, runtime.assignment
    live = list(assignment.services.replica().groups)
    found = assignment.background.poll("take over", lambda: (driver.look(live),))
    if found is None:
        return WAITING
    task, job, last = assignment.task, assignment.job_id, driver.committed
    words = "nothing is committed"
    if last is not None:
        words = f"micro-batch {last.batch} is committed" if last.batch else "a result is committed"
        read = [(f"{each.task} {each.name}", each.position, each.exhausted) for each in last.read]
        words += f"; read are {beginnings(read)}" * bool(last.positions)
    happened(local_event(QUERY_TAKEN_OVER, job, task=task, committed=words))
    return Phase.PUBLISH if found[0] else ADVANCED


def run_query(runtime: DriverRuntime, status: TaskStatus) -> Answer:
    """Wait until the query has staged everything, or a micro-batch. A job that drains reads nothing
    new, and nothing is visible of what its query has read and not committed: the query is ended,
    and windows over inputs without end fire for the last time.

    Raises:
        Failure: the job cannot succeed, or Spark has failed too often.
        Unavailable: Spark has failed and is tried again, or there is no room for its files.
    """
    driver, assignment = runtime.driver, runtime.assignment
    if assignment.latest_run().draining and driver.drain():
        return Phase.COMPLETE
    if runtime.clock.monotonic_s() < status.retry_after_s:
        return WAITING
    start = assignment.services.start_query
    query = driver.begin(lambda request: start(request, assignment.wake))
    if driver.advanced():
        status.batches, status.obstacle = status.batches + 1, ""
    if driver.take_batch():
        status.batches, status.obstacle = status.batches + 1, ""
        return ADVANCED
    try:
        reply = query.reply()
    except Blocked:
        driver.drop_query()
        status.retry_after_s = runtime.clock.monotonic_s() + BLOCKED_RETRY_S
        raise
    except OnyxError as error:
        by_user = isinstance(error, UserError)
        reply = QueryReply(QueryFailure(str(error), by_user, away=not by_user))
    if reply is None:
        return WAITING
    if reply.failure is not None:
        driver.drop_query()
        _fail(runtime, status, driver, reply.failure)
    driver.staged(reply)
    status.batches, status.obstacle = status.batches + 1, ""
    return ADVANCED


def _fail(
    runtime: DriverRuntime, status: TaskStatus, driver: Driver, failure: QueryFailure
) -> None:
    settings, now_s = runtime.services.settings.task, runtime.clock.monotonic_s()
    where = f"task {failure.task}: " if failure.task else ""
    if failure.by_user:
        message, report = f"{where}{failure.message}", failure.report
        if report is not None:
            report = {**report, "job": runtime.job_id, "peer": runtime.assignment.peer}
        raise Failure(Phase.RUN_QUERY.value, UserFunctionError(message), message, report=report)
    error = Unavailable(f"{where}{failure.message}")
    attempts, limit = driver.attempts, settings.seal_attempts_max
    kind = error if failure.away else UserFunctionError(str(error))
    again_s = attempts.next_s(kind, now_s, limit, QUERY_RETRY_S)
    message = f"the query on Spark failed {attempts.words(error)}"
    if again_s is None:
        raise Failure(Phase.RUN_QUERY.value, error, message)
    status.retry_after_s = again_s
    raise Unavailable(message)


def publish(runtime: DriverRuntime, status: TaskStatus) -> Answer:
    """Commit what was staged, and publish what is committed.

    Raises:
        Failure: an output could not be sealed too often.
        Unavailable: an output, or ZooKeeper, cannot be reached now; or sealing is tried again.
        Fenced: this worker was declared dead.
    """
    if runtime.clock.monotonic_s() < status.retry_after_s:
        return WAITING
    driver = runtime.driver
    registered = runtime.services.replica().partitions(runtime.job_id)[runtime.task]
    frontier = FrontierStore(runtime.services, runtime.job_id, registered.first)

    def work() -> bool:
        driver.publish()
        frontier.load()
        frontier.begin(Frontier(position=driver.completed, exhausted=driver.is_over))
        return True

    try:
        if runtime.assignment.background.poll("publish", work) is None:
            return WAITING
    except SealFailed as failed:
        status.retry_after_s = _seal_again_s(runtime, driver, failed)
        raise
    except Unavailable as error:
        delay_s = BLOCKED_RETRY_S if isinstance(error, Blocked) else PUBLISH_RETRY_S
        status.retry_after_s = runtime.clock.monotonic_s() + delay_s
        raise
    return ADVANCED if driver.published() else Phase.RUN_QUERY


def _seal_again_s(runtime: DriverRuntime, driver: Driver, failed: SealFailed) -> float:
    """When to seal again; raises Failure: never."""
    settings, now_s = runtime.services.settings.task, runtime.clock.monotonic_s()
    attempts, limit = driver.seals, settings.seal_attempts_max
    again_s = attempts.next_s(failed.error, now_s, limit, settings.ready_back_off_s)
    if again_s is None:
        tried = f"; it was tried {attempts.failed} times" if attempts.failed > 1 else ""
        times = f"{failed}{tried}"
        raise Failure(Phase.PUBLISH.value, failed.error, times) from failed
    return again_s


def complete(runtime: DriverRuntime, membership: Membership, sealing: Sealing) -> Answer:
    """Log that all is read and, once the log asks for it, that all is written."""
    job, task = runtime.job_id, runtime.task
    if not membership.exhaust_proposed:
        membership.exhaust_proposed = True
        runtime.assignment.propose(ExhaustInput(job=job, task=task))
    if sealing.wanted:
        sealing.wanted = False
        runtime.assignment.propose(SealOutput(job=job, task=task))
    return WAITING


# --- what the machine asks ----------------------------------------------------------------------

RUN: dict[Phase, Callable[[DriverTask], Answer]] = {
    Phase.LOAD_JOB: load_job,
    Phase.WIRE: take_wiring,
    Phase.RECOVER: lambda t: register(t.runtime),
    Phase.SIGNAL_READY: lambda t: signal_ready(t.assignment, t.member.version),
    Phase.AWAIT_READY: lambda t: await_ready(t.runtime, t.member, t.status),
    Phase.TAKE_OVER: lambda t: take_over(t.runtime),
    Phase.RUN_QUERY: lambda t: run_query(t.runtime, t.status),
    Phase.PUBLISH: lambda t: publish(t.runtime, t.status),
    Phase.COMPLETE: lambda t: complete(t.runtime, t.member, t.sealing),
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
    """A failure kills the job, which has no lifecycles: what may be tried again has been."""
    return "kill"


def _closers(task: DriverTask, reason: str) -> list[Callable[[], object]]:
    if task.job is None:
        return []
    inputs = task.runtime.inputs.values()
    return [task.runtime.driver.close, *(each.close for each in inputs)]


DRIVING = Behaviour(RUN, _receive, lambda task: False, _verdict, _closers)


def new_driver(
    services: Services, peer: PeerId, job: JobId, task: TaskName, wake: Callable[[], None]
) -> DriverTask:
    """A driver that is yet to load its job."""
    return DriverTask(DRIVING, services, peer, job, task, TaskKind.DRIVER, wake)
