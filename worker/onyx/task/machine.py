"""The task state machine: one `step()` over the table of phases.

A step does the current phase and moves to its successor in the table. Whatever a phase raises is
decided here: the lifecycles' verdict, then the job is killed or the virtual peer restarted. A step
never blocks and never raises; a phase that cannot go on answers WAITING and is stepped again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from onyx.errors import Fenced, Unavailable, WorkLost, contained, describe
from onyx.task import kept as keeping
from onyx.task import user_code
from onyx.task.failures import restarts
from onyx.task.failures.failure import Failure, report
from onyx.task.messages import Completions, Message, Query, Ready, Rewire, Seal, Stop
from onyx.task.phases import loop, start, wire
from onyx.task.phases.table import (
    LOOP_START,
    TABLE,
    WAITING_PHASES,
    Kind,
    Phase,
    Progress,
)
from onyx.task.source import segment_hooks
from onyx.task.task import Parts, Task
from onyx.task.windowed import assign, query

logger = logging.getLogger("onyx.task")

GOES_ON = ("peer-reallocated", "peer-left", "job-suspended")
"""Reasons for which a peer stops while its job goes on, now or later."""

RUN: dict[Phase, Callable[[Task], Progress]] = {
    Phase.LOAD_JOB: start.load_job,
    Phase.START_TASK: start.start_task,
    Phase.BUILD: start.build,
    Phase.BEFORE_TASK: start.before_task,
    Phase.WIRE: wire.take_wiring,
    Phase.RECOVER: wire.recover,
    Phase.SIGNAL_READY: wire.signal_ready,
    Phase.AWAIT_READY: wire.await_ready,
    Phase.RESUME: wire.resume,
    Phase.BEFORE_BATCH: loop.before_batch,
    Phase.READ_BATCH: loop.read_batch,
    Phase.AFTER_READ_BATCH: loop.after_read_batch,
    Phase.APPLY_FN: loop.apply_fn,
    Phase.AFTER_APPLY_FN: loop.after_apply_fn,
    Phase.ROUTE: loop.route,
    Phase.ASSIGN_WINDOWS: assign.assign_windows,
    Phase.SEND: loop.send_batch,
    Phase.WRITE_BATCH: loop.write_batch,
    Phase.AFTER_BATCH: loop.after_batch,
    Phase.SEAL: loop.seal,
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
WAITING_TOLD_AFTER_S = 3.0
SUPERSEDED_PATIENCE_S = 10.0
"""Whoever may not go on with what it has begun is mostly about to be allocated anew. If not, it was
not declared dead, and begins anew by itself."""
WAITING_TOLD_EVERY_S = 30.0


def advance(task: Task) -> Progress:
    """Step until the task waits, ends, or is through with the whole batches that wait for it."""
    clock = task.services.clock
    task.course.step_since_s = now_s = clock.monotonic_s()
    ends_s = now_s + TURN_MAX_S
    progress = _through_one(task)
    if progress is Progress.ADVANCED:
        for _ in range(1, BATCHES_A_TURN):
            if (now_s := clock.monotonic_s()) >= ends_s or not _more_waits(task):
                break
            task.course.step_since_s = now_s
            _through_one(task)
    task.course.step_since_s = None
    return progress


def _more_waits(task: Task) -> bool:
    """Less than a whole batch is left to grow: small ones cost more than waiting for a round."""
    if task.kind is Kind.INPUT or not task.wired:
        return False
    if task.parts.waiting:
        return True
    return task.live.inbox.waiting_segments() >= task.static.entry.batch_size


def _through_one(task: Task) -> Progress:
    """Step until the task waits, ends, or is through with a batch."""
    progress = step(task)
    if progress is not Progress.ADVANCED:
        return progress
    while task.phase is not LOOP_START:
        if step(task) is not Progress.ADVANCED:
            break
    return Progress.ADVANCED


def step(task: Task) -> Progress:
    """Do one phase of a task."""
    try:
        while task.mail:
            _receive(task, task.mail.popleft())
    except Failure as failure:
        _decide(task, failure)
    except BaseException as error:
        _decide(task, Failure(task.phase.value, contained(error)))
    if task.stop is not None:
        _finish(task, task.stop)
        return Progress.DONE
    phase = task.phase
    restarts.go_on(task)
    if task.failed or (phase in WAITING_PHASES and not task.services.permitted()):
        return Progress.WAITING
    if task.course.superseded_s is not None:
        return _await_new_version(task, task.course.superseded_s)
    try:
        progress = user_code.run(task, phase, RUN[phase])
    except Unavailable as error:
        task.futures.clear()
        task.course.obstacle = str(error)
        _tell_why_it_waits(task, error)
        return Progress.WAITING
    except Failure as failure:
        _decide(task, failure)
        return Progress.WAITING
    except BaseException as error:
        _decide(task, Failure(phase.value, contained(error)))
        return Progress.WAITING
    if task.course.obstacle and phase in _TRIED_AT_EVERY_STEP:
        task.course.obstacle = ""
    if progress is Progress.ADVANCED and task.phase is phase:
        task.phase = task.successors[phase]
        task.course.tell_waiting_s = None
        task.course.obstacle = ""
    return progress


def _await_new_version(task: Task, since_s: float) -> Progress:
    """What was begun is lost to this task. Nothing of it was acknowledged, so it is replayed to
    whoever comes next: after a new allocation, for which a new peer is enough."""
    now_s = task.services.clock.monotonic_s()
    if now_s >= since_s + SUPERSEDED_PATIENCE_S and task.services.permitted():
        logger.warning("task %s begins anew, on a new peer", task.name)
        task.failed = True
        task.services.restart_peer(task.peer)
    return Progress.WAITING


def _tell_why_it_waits(task: Task, error: Unavailable) -> None:
    """What passes soon, as while a job is allocated anew, is not worth a line."""
    now_s = task.services.clock.monotonic_s()
    if task.course.tell_waiting_s is None:
        task.course.tell_waiting_s = now_s + WAITING_TOLD_AFTER_S
    elif now_s >= task.course.tell_waiting_s:
        task.course.tell_waiting_s = now_s + WAITING_TOLD_EVERY_S
        logger.warning("task %s waits in %s: %s", task.name, task.phase.value, error)


def _receive(task: Task, message: Message) -> None:
    match message:
        case Stop():
            task.stop = message
        case Rewire(version) if task.wired and task.live.wiring.version < version:
            task.futures.clear()
            if not task.static.tracked:
                keeping.keep(task)
            task.forget_batch()
            task.controls, task.parts = [], Parts()
            task.course.superseded_s = None
            task.phase = Phase.WIRE
        case Ready(version) if task.wired and task.live.wiring.version == version:
            task.live.ready = True
        case Seal():
            task.seal_wanted = True
        case Query():
            query.answer(task, message)
        case Completions() if task.wired and task.live.wiring.version == message.version:
            source, windowing = task.static.source, task.live.windowing
            if windowing is not None:
                assign.complete(windowing, message)
                return
            assert source is not None, f"completions for {task.name}, which is no source"
            if message.retries_max:
                source.force_retry(message.roots, message.retries_max)
            elif not task.live.ends.take_completion(message.roots):
                segment_hooks.complete(task, source, message.roots)
        case _:
            """Of another version, or before the first wiring: it means nothing here."""


def _decide(task: Task, failure: Failure) -> None:
    if task.failed or not _assigned(task):
        return
    if isinstance(failure.error, Fenced | WorkLost):
        logger.warning("task %s cannot go on with what it began: %s", task.name, failure.detail)
        task.course.superseded_s = task.services.clock.monotonic_s()
        return
    task.failed = True
    task.metrics.failed(failure.segments)
    verdict = "kill"
    if task.loaded:
        event, name = task.static.event, f"lifecycle/{failure.phase}"
        try:
            verdict = task.static.lifecycles.verdict(event, name, failure.error)
        except BaseException as raised:
            failure = Failure("handle-exception", contained(raised))
    if verdict == "restart":
        exhausted = restarts.wait_for(task, failure)
        if exhausted is None:
            return
        failure = exhausted
    values = task.services.settings.task.report_values
    told = report(task.job_id, task.name, task.peer, failure, values)
    stored = task.services.store_exception(task.job_id, told)
    stored.add_done_callback(lambda _: task.propose("kill-job", job=task.job_id))


def _assigned(task: Task) -> bool:
    """Whether the newest replica still has the peer on this task. If not, a Stop is on its way and
    what the task stumbles over meanwhile means nothing."""
    allocation = task.services.replica().allocations.get(task.job_id)
    return allocation is not None and task.peer in allocation.get(task.name, ())


def _finish(task: Task, stop: Stop) -> None:
    """Leave everything; an error on the way out is told and cannot keep the peer here."""
    closers: list[Callable[[], object]] = []
    if task.wired:
        closers.append(task.live.inbox.close)
    if task.loaded:
        static = task.static
        static.event["scheduler_event"] = stop.reason
        if task.started:
            merge = static.lifecycles.merge
            closers.append(lambda: merge("after_task_stop", static.event))
        source = static.source
        if source is not None and static.tracked and stop.reason in GOES_ON:
            # Nobody waits for it. Without it the next owner replays a little more.
            closers.append(lambda: source.give_away(source.known))
        closers += [part.close for part in (static.source, static.sink) if part is not None]
    closers += [task.metrics.close, task.slot.close]
    for close in closers:
        try:
            close()
        except BaseException as error:
            logger.error("task %s, leaving: %s", task.name, describe(error), exc_info=error)
