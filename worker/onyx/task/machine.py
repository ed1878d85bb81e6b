"""The task state machine: one `step()` over the table of phases.

A step does the current phase and moves to its successor in the table. Whatever a phase raises is
decided here: the lifecycles' verdict, then the job is killed or the virtual peer restarted. A step
never blocks; a phase that cannot go on answers WAITING and is stepped again.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from onyx.errors import Fenced, Unavailable
from onyx.task import rewire, start, work
from onyx.task.messages import Completions, Message, Ready, Rewire, Seal, Stop
from onyx.task.phases import LOOP_START, SUCCESSORS, TABLE, Phase, Progress
from onyx.task.state import Task

TRACEBACK_CHARACTERS_MAX = 8_000

RUN: dict[Phase, Callable[[Task], Progress]] = {
    Phase.LOAD_JOB: start.load_job,
    Phase.START_TASK: start.start_task,
    Phase.BUILD: start.build,
    Phase.BEFORE_TASK: start.before_task,
    Phase.WIRE: rewire.take_wiring,
    Phase.RECOVER: rewire.recover,
    Phase.SIGNAL_READY: rewire.signal_ready,
    Phase.AWAIT_READY: rewire.await_ready,
    Phase.RESUME: rewire.resume,
    Phase.BEFORE_BATCH: work.before_batch,
    Phase.READ_BATCH: work.read_batch,
    Phase.AFTER_READ_BATCH: work.after_read_batch,
    Phase.APPLY_FN: work.apply_fn,
    Phase.AFTER_APPLY_FN: work.after_apply_fn,
    Phase.ROUTE: work.route,
    Phase.WRITE_BATCH: work.write_batch,
    Phase.AFTER_BATCH: work.after_batch,
    Phase.SEAL: work.seal,
}
assert list(RUN) == [row.phase for row in TABLE], "every phase of the table has a function"


def advance(task: Task) -> Progress:
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
    while task.mail:
        _receive(task, task.mail.popleft())
    if task.stop is not None:
        _finish(task, task.stop)
        return Progress.DONE
    if task.failed or not task.services.permitted():
        return Progress.WAITING
    phase = task.phase
    try:
        progress = RUN[phase](task)
    except Unavailable:
        task.futures.clear()
        return Progress.WAITING
    except Exception as error:
        _decide(task, phase, error)
        return Progress.WAITING
    if progress is Progress.ADVANCED and task.phase is phase:
        task.phase = SUCCESSORS[task.kind][phase]
    return progress


def _receive(task: Task, message: Message) -> None:
    match message:
        case Stop():
            task.stop = message
        case Rewire() if task.wired:
            task.futures.clear()
            task.batch, task.leaves, task.controls = None, None, []
            task.phase = Phase.WIRE
        case Ready(version) if task.wired and task.live.wiring.version == version:
            task.live.ready = True
        case Seal():
            task.seal_wanted = True
        case Completions() if task.wired and task.live.wiring.version == message.version:
            source = task.static.source
            assert source is not None, f"completions for {task.name}, which is no input"
            if message.retry:
                source.force_retry(message.roots)
            elif not task.live.ends.take_completion(message.roots):
                source.complete(message.roots)
        case _:
            """Of another version, or before the first wiring: it means nothing here."""


def _decide(task: Task, phase: Phase, error: Exception) -> None:
    task.failed = True
    if isinstance(error, Fenced):
        return
    if task.metrics is not None:
        task.metrics.failed()
    verdict = "kill"
    if task.loaded:
        try:
            name = f"lifecycle/{phase.value}"
            verdict = task.static.lifecycles.verdict(task.static.event, name, error)
        except Exception as raised:
            error = raised
    if verdict == "restart":
        task.services.restart_peer(task.peer)
        return
    stored = task.services.store_exception(task.job_id, _report(task, phase, error))
    stored.add_done_callback(lambda _: task.propose("kill-job", job=task.job_id))


def _report(task: Task, phase: Phase, error: Exception) -> dict[str, Any]:
    """What is stored for the user: no segment contents but what their own exception says."""
    cause = error.__cause__ or error
    return {
        "job": task.job_id,
        "task": task.name,
        "peer": task.peer,
        "phase": phase.value,
        "type": type(cause).__name__,
        "message": str(error),
        "traceback": "".join(traceback.format_exception(cause))[-TRACEBACK_CHARACTERS_MAX:],
    }


def _finish(task: Task, stop: Stop) -> None:
    if task.wired:
        task.live.inbox.close()
    if not task.loaded:
        return
    task.static.event["scheduler_event"] = stop.reason
    try:
        task.static.lifecycles.merge("after_task_stop", task.static.event)
    finally:
        if task.static.source is not None:
            task.static.source.close()
        if task.static.sink is not None:
            task.static.sink.close()
