"""The facts about a running task for its diagnosis, read from another thread.

Attributes are read and nothing is called: the task's thread may change them meanwhile, or may never
come back. One look that falls between two changes may be wrong; the watch acts on what stays over
several looks.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite

from msgspec.structs import replace

from onyx.base.seams import Clock
from onyx.ids import JobId, PeerId, TaskName
from onyx.model.plugins import runs_spark
from onyx.replica.state import Replica
from onyx.reports.stalls import Reason, instant
from onyx.task import diagnosis
from onyx.task.batch_task import BatchTask
from onyx.task.diagnosis import EARLY, Facts
from onyx.task.parts.allocation import Allocation
from onyx.task.parts.runtime import Runtime
from onyx.task.parts.status import Status
from onyx.task.parts.work import Work
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source
from onyx.task.task import Task

Mark = tuple[object, ...]
"""What changes when a task advances."""


def facts_of(
    task: Task,
    replica: Replica,
    signalled: Collection[PeerId],
    now_s: float,
    permitted: bool,
    thread_taken_by: TaskName | None,
) -> Facts:
    """What is seen of one task on one peer at a moment. `signalled` are peers of this group that
    are ready: the group may still wait for others before it writes that to the log."""
    step_s = task.status.step_since_s
    facts = Facts(
        kind=task.kind,
        phase=task.phase,
        step_s=None if step_s is None else now_s - step_s,
        thread_taken_by=thread_taken_by,
        permitted=permitted,
        obstacle=task.status.obstacle,
        restarts=_restarts(task.status),
        not_ready=_not_ready(replica, task.job_id, signalled),
        held_back=task.user_code.held_back_in is task.phase,
        suspects=_suspects(task.work),
        attempts=task.sealing.attempts.failed,
    )
    if isinstance(task, BatchTask) and task.loaded:
        facts = _of_runtime(facts, task.runtime, task.assignment.clock, now_s)
        return _of_allocation(facts, task.allocation) if task.wired else facts
    return replace(facts, query=task.query)


def _of_runtime(facts: Facts, runtime: Runtime, clock: Clock, now_s: float) -> Facts:
    entry, source, sink = runtime.program.entry, runtime.source, runtime.sink
    progress = runtime.seal_progress.value
    return replace(
        facts,
        maker=str(entry.maker or entry.stage or entry.plugin or ""),
        obstacle=facts.obstacle or (source.obstacle if source is not None else ""),
        in_flight=source.in_flight if source is not None else 0,
        overdue=source.overdue(now_s) if source is not None else 0,
        pending_timeout_ms=source.pending_timeout_ms if source is not None else 0,
        resting=source.resting if source is not None else 0,
        next_try=_next_try(source, clock, now_s),
        undurable=_undurable(sink),
        spark=runs_spark(entry.type, entry.plugin),
        progress="" if progress is None else progress.words,
        tables="" if runtime.tables is None else ", ".join(runtime.tables.missing),
        stage="" if sink is None else sink.doing,
    )


def _of_allocation(facts: Facts, allocation: Allocation) -> Facts:
    lookups = allocation.lookups
    asks = lookups.title if lookups is not None and lookups.waits else ""
    facts = replace(
        facts, outbox_to=allocation.outbox.waits_for(), asks=asks, left=_left(allocation)
    )
    keeper = allocation.keeper
    if keeper is None:
        return facts
    return replace(
        facts,
        in_flight=facts.in_flight + keeper.emissions.unsettled,
        obstacle=facts.obstacle or keeper.obstacle,
        aggregating=keeper.operator.stage,
    )


def _left(allocation: Allocation) -> str:
    edges, keeper = allocation.edges, allocation.keeper
    if edges is None or keeper is None:
        return ""
    resting = edges.resting
    return keeper.operator.why_left(resting) if resting else ""


def mark_of(task: Task, facts: Facts) -> Mark:
    """Equal at two looks if the task has not advanced in between. An input advances when trees
    complete, an output when segments become durable: either can be busy without advancing."""
    if task.job is None:
        return (task.phase,)
    if isinstance(task, BatchTask):
        source, sink = task.runtime.source, task.runtime.sink
        if source is not None and facts.in_flight:
            return ("source", source.completed)
        if sink is not None and facts.undurable:
            return ("sink", sink.acknowledged)
    if facts.stage:
        return ("stage", facts.stage)
    phase = facts.phase if facts.phase in EARLY else None
    return ("task", phase, task.status.batches, facts.in_flight)


def held_by(task: Task) -> int:
    """Segments that wait at the task; of an input, those that are not complete."""
    if not isinstance(task, BatchTask) or not task.loaded:
        return 0
    source, sink = task.runtime.source, task.runtime.sink
    if source is not None and sink is None:
        return source.in_flight
    batch = task.work.batch
    waiting = task.allocation.inbox.waiting_segments() if task.wired else 0
    if task.wired and task.allocation.edges is not None:
        waiting += sum(task.allocation.edges.resting.values())
    return waiting + _undurable(sink) + (len(batch) if batch is not None else 0)


def allowed_s(task: Task, reason: Reason) -> float:
    """How long what the task does may take before it counts as stalled for this reason."""
    if not isinstance(task, BatchTask) or not task.loaded:
        return 0.0
    program = task.runtime.program
    return diagnosis.allowed_s(reason, program.entry, program.job)


def source_of(task: Task) -> Source | None:
    """Where an input, or a stage, reads; None of others and before it is built."""
    return task.runtime.source if isinstance(task, BatchTask) and task.loaded else None


def _undurable(sink: Sink | None) -> int:
    return sink.waiting_segments if sink is not None else 0


def _next_try(source: Source | None, clock: Clock, now_s: float) -> str:
    if source is None or not isfinite(source.rested_s):
        return ""
    return instant(clock.wall_ms() + round((source.rested_s - now_s) * 1000))


def _suspects(work: Work) -> int:
    """The suspects that are still to be tried, the present one included."""
    return int(work.alone) + min(len(work.pieces.waiting), work.pieces.suspects)


def _restarts(status: Status) -> str:
    if status.superseded_s is not None:
        return "another peer owns what it began; a new peer replaces this one"
    if status.restart is not None:
        return "it failed, and a lifecycle restarts it after a wait"
    return ""


def _not_ready(replica: Replica, job: JobId, signalled: Collection[PeerId]) -> tuple[TaskName, ...]:
    run = replica.run(job)
    return tuple(
        name
        for name in replica.tasks_of(job)
        if any(
            peer not in run.ready and peer not in signalled for peer in run.allocation.get(name, ())
        )
    )
