"""The task state machine: one `step()` over the table of phases of its kind.

A step does the current phase and moves to its successor in the table. Whatever a phase raises is
decided here: the lifecycles' verdict, then the job is killed or the virtual peer restarted. A step
never blocks and never raises; a phase that cannot go on answers WAITING and is stepped again.
Where kinds of tasks differ the machine asks the task's `Behaviour`.

A restart (`handle-exception: restart`) gives the whole job a new allocation version, so one that
follows on the other is worse than the failure: nobody works, and the log fills. So the peer waits
first, and is not restarted for ever. It keeps its slot while it waits, because its segments would
only fail on another one. Counts are per task and in the replica; they begin anew when a peer has
worked for long enough without a failure. Time without a failure was taken for progress, and not
segments: behind one that always fails there are others that do not.
"""

from __future__ import annotations

import logging

from onyx.errors import Fenced, Unavailable, WorkLost, contained, describe
from onyx.program.failed_batch import BYTES_MAX, kept
from onyx.program.failure import Failure, blamed, code_line, report
from onyx.program.lifecycles import Verdict
from onyx.program.phases import Phase
from onyx.replica.authors import bounded
from onyx.replica.commands.kill_job import KillJob
from onyx.replica.commands.restart_task import RestartTask
from onyx.replica.job_events import (
    TASK_REPLACED,
    TASK_RESTARTS,
    TASK_SUPERSEDED,
    TASK_WAITS,
    local_event,
)
from onyx.task.parts import Assignment, PlannedRestart, TaskStatus, is_allocated
from onyx.task.table import ADVANCED, DONE, LOOP_END, WAITING, WAITING_PHASES, Answer, StepOutcome
from onyx.task.task import Stop, Task
from onyx.task.user_code import NO_BATCH
from onyx.telemetry.catalog import ERRORS
from onyx.telemetry.logs import happened

logger = logging.getLogger("onyx.task")

_TRIED_AT_EVERY_STEP = (Phase.READ_BATCH, Phase.WRITE_BATCH)
"""Phases whose obstacle is gone as soon as a step raises nothing. Others answer WAITING between two
tries too, with the obstacle still there: it is cleared when they are done."""

BATCHES_A_TURN = 8
"""What waits is worked off before anything new is read: a batch that has to queue has left the
processor's cache when its turn comes, and everything done with it takes twice as long."""

TURN_MAX_S = 0.02
"""No further batch is begun after this, so that a slow function holds up the other tasks of its
process for one batch at a time."""

WAITING_LOGGED_AFTER_S = 3.0

SUPERSEDED_PATIENCE_S = 10.0
"""Whoever may not go on with what it has begun is mostly about to be allocated anew. If not, it was
not declared dead, and begins anew by itself."""

WAITING_LOGGED_EVERY_S = 30.0


def advance(task: Task) -> StepOutcome:
    """Step until the task waits, ends, or is through with the whole batches that wait for it."""
    clock = task.assignment.clock
    task.status.step_since_s = now_s = clock.monotonic_s()
    ends_s = now_s + TURN_MAX_S
    progress = _through_one(task)
    if progress is ADVANCED:
        for _ in range(1, BATCHES_A_TURN):
            if not task.behaviour.more_waits(task) or (now_s := clock.monotonic_s()) >= ends_s:
                break
            task.status.step_since_s = now_s
            _through_one(task)
    task.status.step_since_s = None
    return progress


def _through_one(task: Task) -> StepOutcome:
    """Step until the task waits, ends, or is through with a batch."""
    progress = step(task)
    if progress is not ADVANCED:
        return progress
    while task.phase is not task.successors[LOOP_END]:
        if step(task) is not ADVANCED:
            break
    return ADVANCED


def step(task: Task) -> StepOutcome:
    """Do one phase of a task."""
    if task.mail:
        _read_mail(task)
    if task.stop is not None:
        _finish(task, task.stop)
        return DONE
    phase, status = task.phase, task.status
    if status.restart is not None:
        restart_if_due(task.assignment, status)
    # Without a lease nothing is done that others could see. The phases between those work on what
    # is here, and are gone through.
    if status.failed or (phase in WAITING_PHASES and not task.assignment.services.permitted()):
        return WAITING
    if status.superseded_s is not None:
        return _await_new_version(task, status.superseded_s)
    try:
        answer = (
            _run_recorded(task, phase) if phase in task.user_code.phases else task.run[phase](task)
        )
    except Unavailable as error:
        task.assignment.background.forget()
        status.obstacle = str(error)
        _log_obstacle(task, error)
        return WAITING
    except Failure as failure:
        _decide(task, failure)
        return WAITING
    except BaseException as error:
        _decide(task, _failure_of(task, contained(error)))
        return WAITING
    if status.obstacle and phase in _TRIED_AT_EVERY_STEP:
        status.obstacle = ""
    if answer is WAITING:
        return WAITING
    task.phase = task.successors[phase] if answer is ADVANCED else _named(answer)
    if status.log_waiting_s is not None:
        status.log_waiting_s = None
        status.obstacle = ""
    return ADVANCED


def _named(answer: Answer) -> Phase:
    assert isinstance(answer, Phase), "no phase ends the task"
    return answer


def _run_recorded(task: Task, phase: Phase) -> Answer:
    """Do a phase in which user code runs."""
    user_code = task.user_code
    if not user_code.enter(phase, task.work):
        return WAITING
    try:
        return task.run[phase](task)
    finally:
        user_code.slot.end()


def _read_mail(task: Task) -> None:
    try:
        while task.mail:
            message = task.mail.popleft()
            if isinstance(message, Stop):
                task.stop = message
            else:
                task.behaviour.receive(task, message)
    except Failure as failure:
        _decide(task, failure)
    except BaseException as error:
        _decide(task, _failure_of(task, contained(error)))


def _failure_of(task: Task, error: Exception) -> Failure:
    """What was raised in the phase of a task; by its plugin, if other code than ours did that. (The
    driver of a whole job on Spark is a task that no catalog has.)"""
    catalog = () if task.job is None else task.job.catalog
    plugin = next((each.plugin for each in catalog if each.name == task.name), None)
    by_plugin = plugin is not None and code_line(error)
    return Failure(task.phase.value, error, blamed(f"plugin {plugin}", error) if by_plugin else "")


def _await_new_version(task: Task, since_s: float) -> StepOutcome:
    """What was begun is lost to this task. Nothing of it was acknowledged, so it is replayed to
    whoever comes next: after a new allocation, for which a new peer is enough."""
    now_s = task.assignment.clock.monotonic_s()
    if now_s >= since_s + SUPERSEDED_PATIENCE_S and task.assignment.services.permitted():
        happened(local_event(TASK_REPLACED, task.job_id, task=task.name))
        task.status.failed = True
        task.assignment.services.restart_peer(task.peer)
    return WAITING


def _log_obstacle(task: Task, error: Unavailable) -> None:
    """What passes soon, as while a job is allocated anew, is not worth a line."""
    now_s = task.assignment.clock.monotonic_s()
    if task.status.log_waiting_s is None:
        task.status.log_waiting_s = now_s + WAITING_LOGGED_AFTER_S
    elif now_s >= task.status.log_waiting_s:
        task.status.log_waiting_s = now_s + WAITING_LOGGED_EVERY_S
        phase = task.phase.value
        happened(local_event(TASK_WAITS, task.job_id, task=task.name, phase=phase, why=str(error)))


def _decide(task: Task, failure: Failure) -> None:
    if task.status.failed or not is_allocated(task.assignment):
        return
    if isinstance(failure.error, Fenced | WorkLost):
        why = failure.detail
        happened(local_event(TASK_SUPERSEDED, task.job_id, task=task.name, why=why))
        task.status.superseded_s = task.assignment.clock.monotonic_s()
        return
    task.status.failed = True
    if task.metrics is not None:
        task.metrics.add(ERRORS, failure.segments)
    verdict: Verdict = "kill"  # also when the hook that decides fails itself
    try:
        verdict = task.behaviour.verdict(task, failure)
    except BaseException as raised:
        failure = Failure("handle-exception", contained(raised))
    if verdict == "restart":
        exhausted = plan_restart(task.assignment, task.status, failure)
        if exhausted is None:
            return
        failure = exhausted
    values = task.assignment.services.settings.task.report_values
    text = failure.report or report(task.job_id, task.name, task.peer, failure, values)
    batch = task.work.batch
    if values and batch is not None and task.phase not in NO_BATCH:
        text["batch"] = kept(batch, failure.index, BYTES_MAX)
    stored = task.assignment.services.store_exception(task.job_id, text)
    why = bounded(f"task {task.name} failed in {failure.phase} with {text.get('type')}")
    stored.add_done_callback(lambda _: task.assignment.propose(KillJob(task.job_id, why)))


# --- restarts -----------------------------------------------------------------------------------


def plan_restart(assignment: Assignment, status: TaskStatus, failure: Failure) -> Failure | None:
    """Plan the restart of a task's peer; the failure for which the job is killed instead when it
    was restarted too often."""
    settings = assignment.services.settings.task
    now_s = assignment.clock.monotonic_s()
    ready_s = status.ready_since_s
    afresh = ready_s is not None and now_s - ready_s >= settings.restarts_forgotten_after_s
    counts = assignment.services.replica().run(assignment.job_id).restarts
    count = 0 if afresh else counts.get(assignment.task, 0)
    if count >= settings.restarts_max:
        detail = (
            f"restarted {count} times without {settings.restarts_forgotten_after_s:g} s of work in "
            f"between (setting task.restarts_max); the last error: {failure.detail}"
        )
        return Failure(
            failure.phase,
            failure.error,
            detail,
            failure.segments,
            failure.segment,
            index=failure.index,
        )
    first_s, most_s = settings.retry_start_interval_s, settings.retry_start_interval_max_s
    wait_s = min(first_s * 2**count, most_s)
    status.restart = PlannedRestart(now_s + wait_s, afresh)
    happened(
        local_event(
            TASK_RESTARTS,
            assignment.job_id,
            task=assignment.task,
            count=count + 1,
            most=settings.restarts_max,
            seconds=wait_s,
            phase=failure.phase,
            why=failure.detail,
        )
    )
    return None


def restart_if_due(assignment: Assignment, status: TaskStatus) -> None:
    """Restart the peer when it has waited long enough."""
    restart = status.restart
    if restart is None or assignment.clock.monotonic_s() < restart.due_s:
        return
    if not assignment.services.permitted():
        return
    status.restart = None
    assignment.propose(
        RestartTask(job=assignment.job_id, task=assignment.task, afresh=restart.afresh)
    )
    assignment.services.restart_peer(assignment.peer)


# --- the end ------------------------------------------------------------------------------------


def _finish(task: Task, stop: Stop) -> None:
    """Leave everything; an error on the way out is logged and cannot keep the peer here."""
    closers = task.behaviour.closers(task, stop.reason)
    if task.metrics is not None:
        closers.append(task.metrics.close)
    closers.append(task.user_code.slot.close)
    for close in closers:
        try:
            close()
        except BaseException as error:
            logger.error("task %s, leaving: %s", task.name, describe(error), exc_info=error)
