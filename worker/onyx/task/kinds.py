"""The kinds of tasks: which one a task of a job is, a new task of that kind, and how one that works
on batches answers the machine.

`RUN` has what such a task does in each phase, with the parts that each uses. The driver of a query
of Spark answers in `driver/driver_task`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onyx.base.on_demand import OnDemand
from onyx.base.runs import Numbers
from onyx.flow.batch import Batch
from onyx.ids import JobId, PeerId, TaskName
from onyx.program.failure import Failure
from onyx.program.lifecycles import Verdict
from onyx.program.phases import Phase
from onyx.replica.state import Replica
from onyx.task import questions, upkeep
from onyx.task.parts import Allocation, signal_ready
from onyx.task.phases import apply, finish, read, send, start, wire
from onyx.task.questions import answer_lookup
from onyx.task.services import Services
from onyx.task.source.source import Source, complete_trees
from onyx.task.table import TABLES, Answer, TaskKind
from onyx.task.task import (
    BatchTask,
    Behaviour,
    CompletedTrees,
    Message,
    Ready,
    RetriedTrees,
    ReturnedValues,
    Rewire,
    Seal,
    StateQuestion,
    Task,
)
from onyx.telemetry.catalog import SOURCE_OFFSET
from onyx.transport.interface import LookUp, LookUpAnswer

Wake = Callable[[], None]

_NEW_DRIVER: OnDemand[Callable[[Services, PeerId, JobId, TaskName, Wake], Task]]
_NEW_DRIVER = OnDemand("onyx.task.driver.driver_task:new_driver")

GOES_ON = ("peer-reallocated", "peer-left", "job-suspended")
"""Reasons for which a peer stops while its job goes on, now or later."""

_INPUT = TaskKind.INPUT


def kind_of(replica: Replica, job: JobId, task: TaskName) -> TaskKind:
    """What a task does at its end of the workflow of a job that runs."""
    spec = replica.spec(job).by_name[task]
    if spec.input and spec.output:
        return TaskKind.STAGE if spec.fed_by else TaskKind.DRIVER
    if spec.input:
        return TaskKind.INPUT
    return TaskKind.OUTPUT if spec.output else TaskKind.FUNCTION


def new_task(
    services: Services,
    peer: PeerId,
    job: JobId,
    task: TaskName,
    kind: TaskKind,
    wake: Wake,
) -> Task:
    """A task that is yet to load its job.

    Args:
        wake: steps the task soon; from any thread.
    """
    if kind is TaskKind.DRIVER:
        return _NEW_DRIVER.load()(services, peer, job, task, wake)
    return BatchTask(BATCHES, services, peer, job, task, kind, wake)


# --- the phases of a task that works on batches -------------------------------------------------

RUN: dict[Phase, Callable[[BatchTask], Answer]] = {
    Phase.LOAD_JOB: start.load_job,
    Phase.START_TASK: lambda t: start.start_task(t.runtime, t.status),
    Phase.BUILD: start.build,
    Phase.BEFORE_TASK: lambda t: start.before_task(t.runtime.program, t.status),
    Phase.WIRE: wire.take_wiring,
    Phase.RECOVER: lambda t: wire.recover(t.runtime, t.allocation),
    Phase.SIGNAL_READY: lambda t: signal_ready(t.assignment, t.allocation.wiring.version),
    Phase.AWAIT_READY: lambda t: wire.await_ready(t.runtime, t.allocation, t.status),
    Phase.RESUME: lambda t: wire.resume(t.runtime, t.allocation),
    Phase.BEFORE_BATCH: lambda t: read.before_batch(t.runtime.program),
    Phase.READ_BATCH: read.read_batch,
    Phase.AFTER_READ_BATCH: lambda t: read.after_read_batch(t.runtime.program, t.work),
    Phase.LOOK_UP: lambda t: apply.look_up(t.runtime, t.allocation, t.work),
    Phase.APPLY_FN: lambda t: apply.apply_fn(t.runtime, t.allocation, t.work),
    Phase.AFTER_APPLY_FN: lambda t: apply.after_apply_fn(t.runtime, t.work),
    Phase.ROUTE: lambda t: apply.route(t.runtime, t.allocation, t.work),
    Phase.ASSIGN_WINDOWS: lambda t: apply.assign_windows(t.runtime, t.allocation, t.work),
    Phase.SEND: lambda t: send.send_batch(t.runtime, t.allocation, t.work),
    Phase.WRITE_BATCH: lambda t: send.write_batch(t.runtime, t.allocation, t.work),
    Phase.AFTER_BATCH: finish.after_batch,
    Phase.SEAL: lambda t: finish.seal(t.runtime, t.status, t.sealing),
}

assert RUN.keys() == {
    row.phase for kind in TaskKind if kind is not TaskKind.DRIVER for row in TABLES[kind]
}, "every phase of the tables has a function"


# --- messages -----------------------------------------------------------------------------------


def _receive(task: BatchTask, message: Message) -> None:
    match message:
        case Rewire(version) if task.wired and task.allocation.wiring.version < version:
            # Nothing of the old version goes on. Where it is replayed, it is dropped; under
            # at-most-once nobody would send it again, so the task takes it over (`delivery.keep`).
            task.assignment.background.forget()
            work, old = task.work, task.allocation
            _leave_state(old)
            task.runtime.delivery.keep(
                task.phase,
                work.batch,
                work.leaves,
                (*work.pieces.waiting, *work.others, *_on_edges(old)),
                old.outbox,
                old.inbox,
                old.wiring.upstream,
            )
            work.forget_all()
            task.status.superseded_s = None
            task.phase = Phase.WIRE
        case Ready(version) if task.wired and task.allocation.wiring.version == version:
            task.allocation.ready = True
        case Seal():
            task.sealing.wanted = True
        case StateQuestion():
            questions.answer(task, message)
        case LookUp():
            answer_lookup(task, message)
        case LookUpAnswer() if task.wired and task.allocation.wiring.version == message.version:
            assert task.allocation.lookups is not None, "only who asks is answered"
            task.allocation.lookups.receive(message)
        case CompletedTrees() if task.wired and task.allocation.wiring.version == message.version:
            _complete(task, message.roots)
        case RetriedTrees() if task.wired and task.allocation.wiring.version == message.version:
            _retry(task, message)
        case ReturnedValues() if task.wired and task.allocation.wiring.version == message.version:
            if task.runtime.source is not None:
                task.runtime.source.returned(message.trees)
            else:
                upkeep.returned(task.allocation, message.trees)
        case _:
            pass  # of another version, or before the first wiring: it means nothing here


def _complete(task: BatchTask, roots: Numbers) -> None:
    runtime, allocation = task.runtime, task.allocation
    if allocation.ends.take_completion(roots):
        return  # of the END tree, which no source began
    # A task with state begins trees with what it emits; whoever has a keeper reads no source.
    if allocation.keeper is not None:
        allocation.keeper.complete(roots)
    else:
        complete_trees(_source(task), runtime.program, roots)


def _retry(task: BatchTask, message: RetriedTrees) -> None:
    keeper = task.allocation.keeper
    if keeper is not None:
        keeper.emissions.force_retry(message.roots, message.retries_max)
    else:
        _source(task).force_retry(message.roots, message.retries_max)


def _source(task: BatchTask) -> Source:
    source = task.runtime.source
    assert source is not None, f"{task.name} has begun no trees: it is no source and has no state"
    return source


def _on_edges(allocation: Allocation) -> Iterator[Batch]:
    return iter(()) if allocation.edges is None else allocation.edges.batches()


def _leave_state(allocation: Allocation) -> None:
    if allocation.keeper is not None:
        allocation.keeper.leave()


# --- failures, turns, and the end ---------------------------------------------------------------


def _verdict(task: BatchTask, failure: Failure) -> Verdict:
    if not task.loaded:
        return "kill"
    program = task.runtime.program
    return program.lifecycles.verdict(program.event, f"lifecycle/{failure.phase}", failure.error)


def _more_waits(task: BatchTask) -> bool:
    """Less than a whole batch is left to grow: small ones cost more than waiting for a round."""
    if task.assignment.kind is _INPUT or not task.wired:
        return False
    if task.work.pieces.waiting:
        return True
    return task.allocation.inbox.waiting_segments() >= task.runtime.sizing.segments_max


def _closers(task: BatchTask, reason: str) -> list[Callable[[], object]]:
    closers: list[Callable[[], object]] = []
    if task.wired:
        closers.append(task.allocation.inbox.close)
        closers.append(lambda: _leave_state(task.allocation))
    if task.loaded:
        runtime = task.runtime
        source, program = runtime.source, runtime.program
        program.event["scheduler_event"] = reason
        if task.status.started:
            closers.append(lambda: program.lifecycles.merge("after_task_stop", program.event))
        if source is not None and reason in GOES_ON:
            closers.append(lambda: runtime.delivery.leave(source))
            # Whoever takes the partitions over counts all of their positions.
            closers.append(lambda: runtime.metrics.set(SOURCE_OFFSET, 0))
        closers += [part.close for part in (source, runtime.sink) if part is not None]
        if runtime.tables is not None:
            closers.append(runtime.tables.leave)
    return closers


BATCHES = Behaviour(RUN, _receive, _more_waits, _verdict, _closers)
