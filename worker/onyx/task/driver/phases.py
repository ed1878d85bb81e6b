"""TAKE_OVER to COMPLETE, the phases of the driver of a job that Spark runs as a whole.

In the log such a job has one task, which is input and output at once. The order of the phases is
its guarantee: whoever has the task first asks whether a result is committed, and runs a query only
if none is. What a query has staged is committed before it is published, and published before the
task logs that all is read and written. So a crash anywhere leads to a phase that goes on from there
(`spark.driver.committed`).
"""

from __future__ import annotations

from onyx.errors import Blocked, OnyxError, Unavailable, UserError, UserFunctionError
from onyx.plugins.attempts import BLOCKED_RETRY_S
from onyx.program.failure import Failure
from onyx.program.phases import Phase
from onyx.replica.commands.exhaust_input import ExhaustInput
from onyx.replica.commands.seal_output import SealOutput
from onyx.spark.driver.driver import Driver
from onyx.spark.driver.outputs import SealFailed
from onyx.spark.driver.request import QueryFailure, QueryReply
from onyx.task.driver.task import DriverRuntime, Membership
from onyx.task.parts import Sealing, TaskStatus
from onyx.task.source.frontier import Frontier, FrontierStore
from onyx.task.table import ADVANCED, WAITING, Answer

QUERY_RETRY_S = 1.0
"""Before a query is run again that has failed, and not because Spark is away."""
PUBLISH_RETRY_S = 1.0
"""What cannot be published is tried again so often."""


def take_over(runtime: DriverRuntime) -> Answer:
    """Ask whether a result is committed; fence off those who might stage another one if not."""
    driver, assignment = runtime.driver, runtime.assignment
    live = list(assignment.services.replica().groups)
    found = assignment.background.poll("take over", lambda: (driver.look(live),))
    if found is None:
        return WAITING
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
