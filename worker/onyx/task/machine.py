"""The task state machine: one `step()` over the table of phases.

A step does the current phase and moves to its successor in the table. Whatever a phase raises is
decided here: the lifecycles' verdict, then the job is killed or the virtual peer restarted. A step
never blocks and never raises; a phase that cannot go on answers WAITING and is stepped again.

`RUN` says which parts of the task each phase uses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from onyx.errors import Fenced, Unavailable, WorkLost, contained, describe
from onyx.program.failure import Failure, report
from onyx.program.phases import Phase
from onyx.replica.commands.kill_job import KillJob
from onyx.task.failures import restarts
from onyx.task.messages import Completions, Message, Query, Ready, Rewire, Seal, Stop
from onyx.task.phases import apply, drive, finish, read, route, send, start, wire
from onyx.task.source import segment_hooks
from onyx.task.table import (
    ADVANCED,
    DONE,
    LOOP_END,
    TABLE,
    WAITING,
    WAITING_PHASES,
    Answer,
    Kind,
    Progress,
)
from onyx.task.task import Task
from onyx.task.windowed import query, upkeep
from onyx.telemetry.catalog import ERRORS

logger = logging.getLogger("onyx.task")

GOES_ON = ("peer-reallocated", "peer-left", "job-suspended")
"""Reasons for which a peer stops while its job goes on, now or later."""

RUN: dict[Phase, Callable[[Task], Answer]] = {
    Phase.LOAD_JOB: start.load_job,
    Phase.START_TASK: lambda t: start.start_task(t.runtime, t.status),
    Phase.BUILD: start.build,
    Phase.BEFORE_TASK: lambda t: start.before_task(t.runtime.program, t.status),
    Phase.WIRE: wire.take_wiring,
    Phase.RECOVER: lambda t: wire.recover(t.runtime, t.allocation),
    Phase.SIGNAL_READY: lambda t: wire.signal_ready(t.assignment, t.allocation),
    Phase.AWAIT_READY: lambda t: wire.await_ready(t.runtime, t.allocation, t.status),
    Phase.RESUME: lambda t: wire.resume(t.runtime, t.allocation),
    Phase.BEFORE_BATCH: lambda t: read.before_batch(t.runtime.program),
    Phase.READ_BATCH: read.read_batch,
    Phase.AFTER_READ_BATCH: lambda t: read.after_read_batch(t.runtime.program, t.work),
    Phase.APPLY_FN: lambda t: apply.apply_fn(t.runtime, t.work),
    Phase.AFTER_APPLY_FN: lambda t: apply.after_apply_fn(t.runtime, t.work),
    Phase.ROUTE: lambda t: route.route(t.runtime.program, t.allocation, t.work),
    Phase.ASSIGN_WINDOWS: lambda t: route.assign_windows(t.runtime.program, t.allocation, t.work),
    Phase.SEND: lambda t: send.send_batch(t.runtime, t.allocation, t.work),
    Phase.WRITE_BATCH: lambda t: send.write_batch(
        t.assignment.services.transport, t.runtime, t.allocation, t.work
    ),
    Phase.AFTER_BATCH: finish.after_batch,
    Phase.SEAL: lambda t: finish.seal(t.runtime, t.status, t.sealing),
    Phase.TAKE_OVER: lambda t: drive.take_over(t.runtime),
    Phase.RUN_QUERY: lambda t: drive.run_query(t.runtime, t.status),
    Phase.PUBLISH: lambda t: drive.publish(t.runtime, t.status),
    Phase.COMPLETE: lambda t: drive.complete(t.runtime, t.allocation, t.sealing),
}
assert list(RUN) == [row.phase for row in TABLE], "every phase of the table has a function"


_TRIED_AT_EVERY_STEP = (Phase.READ_BATCH, Phase.WRITE_BATCH)
"""Others wait between two tries, and what was in their way is in their way until they are done."""

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


def advance(task: Task) -> Progress:
    """Step until the task waits, ends, or is through with the whole batches that wait for it."""
    clock = task.assignment.clock
    task.status.step_since_s = now_s = clock.monotonic_s()
    ends_s = now_s + TURN_MAX_S
    progress = _through_one(task)
    if progress is ADVANCED:
        for _ in range(1, BATCHES_A_TURN):
            if not _more_waits(task) or (now_s := clock.monotonic_s()) >= ends_s:
                break
            task.status.step_since_s = now_s
            _through_one(task)
    task.status.step_since_s = None
    return progress


def _more_waits(task: Task) -> bool:
    """Less than a whole batch is left to grow: small ones cost more than waiting for a round."""
    if task.assignment.kind is _INPUT or not task.wired:
        return False
    if task.work.parts.waiting:
        return True
    return task.allocation.inbox.waiting_segments() >= task.runtime.sizing.segments_max


_INPUT = Kind.INPUT


def _through_one(task: Task) -> Progress:
    """Step until the task waits, ends, or is through with a batch."""
    progress = step(task)
    if progress is not ADVANCED:
        return progress
    while task.phase is not task.successors[LOOP_END]:
        if step(task) is not ADVANCED:
            break
    return ADVANCED


def step(task: Task) -> Progress:
    """Do one phase of a task."""
    if task.mail:
        _read_mail(task)
    if task.stop is not None:
        _finish(task, task.stop)
        return DONE
    phase, status = task.phase, task.status
    if status.restart is not None:
        restarts.go_on(task.assignment, status)
    if status.failed or (phase in WAITING_PHASES and not task.assignment.services.permitted()):
        return WAITING
    if status.superseded_s is not None:
        return _await_new_version(task, status.superseded_s)
    try:
        answer = _run_recorded(task, phase) if phase in task.user_code.phases else RUN[phase](task)
    except Unavailable as error:
        task.assignment.background.forget()
        status.obstacle = str(error)
        _log_obstacle(task, error)
        return WAITING
    except Failure as failure:
        _decide(task, failure)
        return WAITING
    except BaseException as error:
        _decide(task, Failure(phase.value, contained(error)))
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
        return RUN[phase](task)
    finally:
        user_code.slot.end()


def _read_mail(task: Task) -> None:
    try:
        while task.mail:
            _receive(task, task.mail.popleft())
    except Failure as failure:
        _decide(task, failure)
    except BaseException as error:
        _decide(task, Failure(task.phase.value, contained(error)))


def _await_new_version(task: Task, since_s: float) -> Progress:
    """What was begun is lost to this task. Nothing of it was acknowledged, so it is replayed to
    whoever comes next: after a new allocation, for which a new peer is enough."""
    now_s = task.assignment.clock.monotonic_s()
    if now_s >= since_s + SUPERSEDED_PATIENCE_S and task.assignment.services.permitted():
        logger.warning("task %s begins anew, on a new peer", task.name)
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
        logger.warning("task %s waits in %s: %s", task.name, task.phase.value, error)


def _receive(task: Task, message: Message) -> None:
    match message:
        case Stop():
            task.stop = message
        case Rewire(version) if task.wired and task.allocation.wiring.version < version:
            task.assignment.background.forget()
            work, old = task.work, task.allocation
            task.runtime.delivery.keep(
                task.phase, work.batch, work.leaves, work.parts.waiting, old.outbox, old.inbox
            )
            work.forget_all()
            task.status.superseded_s = None
            task.phase = Phase.WIRE
        case Ready(version) if task.wired and task.allocation.wiring.version == version:
            task.allocation.ready = True
        case Seal():
            task.sealing.wanted = True
        case Query():
            has_state = task.wired and not task.status.failed
            query.answer(task.name, task.allocation if has_state else None, message)
        case Completions() if task.wired and task.allocation.wiring.version == message.version:
            _complete(task, message)
        case _:
            pass  # of another version, or before the first wiring: it means nothing here


def _complete(task: Task, message: Completions) -> None:
    """Trees that this task began are complete, or are to be replayed."""
    runtime, allocation = task.runtime, task.allocation
    if allocation.windowing is not None:
        upkeep.complete(allocation.windowing, message)
        return
    source = runtime.source
    assert source is not None, f"completions for {task.name}, which is no source"
    if message.retries_max:
        source.force_retry(message.roots, message.retries_max)
    elif not allocation.ends.take_completion(message.roots):
        segment_hooks.complete(source, runtime.program, message.roots)


def _decide(task: Task, failure: Failure) -> None:
    if task.status.failed or not _assigned(task):
        return
    if isinstance(failure.error, Fenced | WorkLost):
        logger.warning("task %s cannot go on with what it began: %s", task.name, failure.detail)
        task.status.superseded_s = task.assignment.clock.monotonic_s()
        return
    task.status.failed = True
    verdict = "kill"
    if task.loaded:
        task.runtime.metrics.add(ERRORS, failure.segments)
        event, name = task.runtime.program.event, f"lifecycle/{failure.phase}"
        try:
            verdict = task.runtime.program.lifecycles.verdict(event, name, failure.error)
        except BaseException as raised:
            failure = Failure("handle-exception", contained(raised))
    if verdict == "restart":
        exhausted = restarts.wait_for(task.assignment, task.status, failure)
        if exhausted is None:
            return
        failure = exhausted
    values = task.assignment.services.settings.task.report_values
    text = failure.report or report(task.job_id, task.name, task.peer, failure, values)
    stored = task.assignment.services.store_exception(task.job_id, text)
    stored.add_done_callback(lambda _: task.assignment.propose(KillJob(job=task.job_id)))


def _assigned(task: Task) -> bool:
    """Whether the newest replica still has the peer on this task. If not, a Stop is on its way and
    what the task stumbles over meanwhile means nothing."""
    allocation = task.assignment.services.replica().run(task.job_id).allocation
    return task.peer in allocation.get(task.name, ())


def _finish(task: Task, stop: Stop) -> None:
    """Leave everything; an error on the way out is logged and cannot keep the peer here."""
    closers: list[Callable[[], object]] = []
    if task.wired:
        closers.append(task.allocation.inbox.close)
    if task.loaded:
        runtime = task.runtime
        source, event = runtime.source, runtime.program.event
        event["scheduler_event"] = stop.reason
        if task.status.started:
            closers.append(lambda: runtime.program.lifecycles.merge("after_task_stop", event))
        if source is not None and stop.reason in GOES_ON:
            closers.append(lambda: runtime.delivery.leave(source))
        parts = (source, runtime.sink, runtime.driver)
        closers += [part.close for part in parts if part is not None]
        closers.append(runtime.metrics.close)
    closers.append(task.user_code.slot.close)
    for close in closers:
        try:
            close()
        except BaseException as error:
            logger.error("task %s, leaving: %s", task.name, describe(error), exc_info=error)
