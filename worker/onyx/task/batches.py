"""A task that works on batches, where kinds of tasks differ: messages, failures, its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from onyx.flow.batch import Batch
from onyx.program.failure import Failure
from onyx.program.lifecycles import Verdict
from onyx.program.phases import Phase
from onyx.task import looked_up, questions
from onyx.task.batch_task import BatchTask
from onyx.task.behaviour import Behaviour
from onyx.task.messages import Completions, Message, Query, Ready, Returns, Rewire, Seal
from onyx.task.parts.allocation import Allocation
from onyx.task.phases.run import RUN
from onyx.task.source import segment_hooks
from onyx.task.stateful import upkeep
from onyx.task.table import Kind
from onyx.telemetry.catalog import SOURCE_OFFSET
from onyx.transport.lookups import Found, LookUp

GOES_ON = ("peer-reallocated", "peer-left", "job-suspended")
"""Reasons for which a peer stops while its job goes on, now or later."""


def _more_waits(task: BatchTask) -> bool:
    """Less than a whole batch is left to grow: small ones cost more than waiting for a round."""
    if task.assignment.kind is _INPUT or not task.wired:
        return False
    if task.work.pieces.waiting:
        return True
    return task.allocation.inbox.waiting_segments() >= task.runtime.sizing.segments_max


_INPUT = Kind.INPUT


def _receive(task: BatchTask, message: Message) -> None:
    match message:
        case Rewire(version) if task.wired and task.allocation.wiring.version < version:
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
        case Query():
            questions.answer(task, message)
        case LookUp():
            looked_up.answer(task, message)
        case Found() if task.wired and task.allocation.wiring.version == message.version:
            assert task.allocation.lookups is not None, "only who asks is answered"
            task.allocation.lookups.receive(message)
        case Completions() if task.wired and task.allocation.wiring.version == message.version:
            _complete(task, message)
        case Returns() if task.wired and task.allocation.wiring.version == message.version:
            if task.runtime.source is not None:
                task.runtime.source.returned(message.trees)
            else:
                upkeep.returned(task.allocation, message.trees)
        case _:
            pass  # of another version, or before the first wiring: it means nothing here


def _on_edges(allocation: Allocation) -> Iterator[Batch]:
    return iter(()) if allocation.edges is None else allocation.edges.batches()


def _leave_state(allocation: Allocation) -> None:
    if allocation.keeper is not None:
        allocation.keeper.leave()


def _complete(task: BatchTask, message: Completions) -> None:
    """Trees that this task began are complete, or are to be replayed."""
    runtime, allocation = task.runtime, task.allocation
    if not message.retries_max and allocation.ends.take_completion(message.roots):
        return
    if allocation.keeper is not None:
        upkeep.complete(allocation.keeper, message)
        return
    source = runtime.source
    assert source is not None, f"completions for {task.name}, which is no source"
    if message.retries_max:
        source.force_retry(message.roots, message.retries_max)
    else:
        segment_hooks.complete(source, runtime.program, message.roots)


def _verdict(task: BatchTask, failure: Failure) -> Verdict:
    if not task.loaded:
        return "kill"
    program = task.runtime.program
    return program.lifecycles.verdict(program.event, f"lifecycle/{failure.phase}", failure.error)


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
