"""Watches the tasks of a group and reports those that do not advance, with the reason.

Runs on the group's own thread, once a second: the thread of a task may be inside a function that
never returns. So attributes of a task are read and nothing is called: its thread may change them
meanwhile, or may never come back. One look that falls between two changes may be wrong; the watch
acts on what stays over several looks.

While all tasks advance, nothing is reported. A report is a small document beside the log for each
job and group. It is written when it changes, and removed when the job advances again; readers
ignore those of groups that have left. So everybody who can read ZooKeeper sees why a job does not
advance, also when no worker answers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from math import isfinite

import msgspec
from msgspec.structs import replace

from onyx.base.seams import Clock
from onyx.errors import OnyxError
from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.log import documents
from onyx.log.interface import GroupLog
from onyx.model.locations import without_secrets
from onyx.model.plugins import runs_spark
from onyx.peer.life import Pending, RunAside
from onyx.peer.work.measuring import source_of
from onyx.peer.work.task_threads import TaskRunner, busiest, stack_of
from onyx.program.failure import shown
from onyx.program.phases import Phase
from onyx.replica.job_events import TASK_STALLS, EventValue, local_event
from onyx.replica.state import Replica
from onyx.reports.stalls import SLOW, Reason, Stall, instant
from onyx.task import diagnosis
from onyx.task.diagnosis import EARLY, Facts, diagnose, is_alone
from onyx.task.parts import Allocation, Runtime, TaskStatus, Work
from onyx.task.sink.sink import Sink
from onyx.task.source.source import Source
from onyx.task.task import BatchTask, Task
from onyx.telemetry.catalog import JOB_STALLED
from onyx.telemetry.interface import GroupMetrics
from onyx.telemetry.logs import happened
from onyx.user_code.breakpoints import somebody_debugs

logger = logging.getLogger("onyx.peer")

LOOK_INTERVAL_S = 1.0

WHY_CHARACTERS_MAX = 800

LOG_INTERVAL_S = 60.0

WRITE_INTERVAL_S = 5.0
"""A report that changes is written anew at most so often."""

STALLS_MAX = 32
"""In one report; the causes first."""

_MESSENGERS = frozenset({Reason.PEERS, Reason.THREAD, Reason.DOWNSTREAM, Reason.COMPLETIONS})


class _Watched(msgspec.Struct):
    """What is remembered of a task between two looks."""

    mark: Mark
    moved_s: float
    """When it had advanced, or had nothing to do, last."""
    reason: Reason | None = None
    logged_s: float | None = None


class StallWatch:
    """The stall watch of one incarnation. Used by the group's thread."""

    def __init__(
        self,
        reports: StallReports,
        metrics: GroupMetrics,
        clock: Clock,
        stalled_after_s: float,
    ) -> None:
        self._reports = reports
        self._metrics = metrics
        self._clock = clock
        self._after_s = stalled_after_s
        self._next_s = 0.0
        self._tasks: dict[tuple[PeerId, JobId, TaskName], _Watched] = {}

    def look(self, runners: Collection[TaskRunner], replica: Replica, permitted: bool) -> None:
        """Look at all tasks, if it is time."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_INTERVAL_S
        if somebody_debugs():  # who has all the time of the world
            self._tasks.clear()
        stalls: list[tuple[str, Stall, float]] = []
        keys = set()
        taken_by = busiest(runners, now_s)
        signalled = {each.task.peer for each in runners if each.task.phase is Phase.AWAIT_READY}
        for runner in runners:
            task = runner.task
            key = task.peer, task.job_id, task.name
            keys.add(key)
            try:
                found = self._seen(runner, replica, signalled, now_s, permitted, taken_by)
            except RuntimeError:  # a dict of the task's has changed while it was looked through
                continue
            if found is not None:
                name = str(task.job_id) if task.job is None else task.job.name
                stalls.append((name, found, now_s - self._tasks[key].moved_s))
        for key in self._tasks.keys() - keys:
            del self._tasks[key]
        self._metrics.replace(JOB_STALLED, _longest(stalls))
        self._reports.report([each for _, each, _ in stalls], now_s, permitted)

    def close(self) -> None:
        """The incarnation has ended; its reports count for nothing any more."""
        self._metrics.replace(JOB_STALLED, {})

    def _seen(
        self,
        runner: TaskRunner,
        replica: Replica,
        signalled: Collection[PeerId],
        now_s: float,
        permitted: bool,
        taken_by: TaskName | None,
    ) -> Stall | None:
        task = runner.task
        other = taken_by if runner.shared and taken_by != task.name else None
        facts = facts_of(task, replica, signalled, now_s, permitted, other)
        found, mark = diagnose(facts), mark_of(task, facts)
        key = task.peer, task.job_id, task.name
        watched = self._tasks.setdefault(key, _Watched(mark, now_s))
        if found is None or mark != watched.mark:
            self._tasks[key] = _Watched(mark, now_s)
            return None
        if now_s - watched.moved_s < self._after_s:
            return None
        reason, why = found
        in_time = now_s - watched.moved_s < self._after_s + allowed_s(task, reason)
        if not in_time:
            about = replica.said_of(task.job_id)
            self._log_stall(task, about, watched, reason, why, now_s)
        wall_ms = self._clock.wall_ms()
        source = source_of(task)
        oldest_s = source.oldest_s(now_s) if source is not None else None
        return Stall(
            job=task.job_id,
            task=task.name,
            peer=task.peer,
            reason=reason,
            why=shown(why, WHY_CHARACTERS_MAX),
            since_ms=_rounded(wall_ms - int((now_s - watched.moved_s) * 1000)),
            alone=is_alone(facts),
            segments=held_by(task),
            oldest_ms=0 if oldest_s is None else _rounded(wall_ms - int(oldest_s * 1000)),
            is_input=source is not None,
            overdue_ms=facts.pending_timeout_ms if facts.overdue else 0,
            in_time=in_time,
            stack=stack_of(runner) if reason in SLOW and facts.step_s else (),
        )

    def _log_stall(
        self,
        task: Task,
        about: Mapping[str, EventValue],
        watched: _Watched,
        reason: Reason,
        why: str,
        now_s: float,
    ) -> None:
        again_s = None if watched.logged_s is None else watched.logged_s + LOG_INTERVAL_S
        if reason is watched.reason and again_s is not None and now_s < again_s:
            return
        watched.reason, watched.logged_s = reason, now_s
        seconds = round(now_s - watched.moved_s)
        values: dict[str, EventValue] = {
            "task": task.name, "peer": task.peer, "seconds": seconds, "why": without_secrets(why)
        }  # fmt: skip
        happened(local_event(TASK_STALLS, task.job_id, about, **values))


def _longest(stalls: Sequence[tuple[str, Stall, float]]) -> dict[tuple[str, ...], float]:
    """Seconds by job, task and reason, of those that last longer than their reason allows."""
    longest: dict[tuple[str, ...], float] = {}
    for name, each, age_s in stalls:
        if not each.in_time:
            labels = name, each.task, each.reason
            longest[labels] = max(age_s, longest.get(labels, 0.0))
    return longest


def _rounded(wall_ms: int) -> int:
    """Two looks at the same moment in the past come to the same."""
    return round(wall_ms, -3)


# --- reports ------------------------------------------------------------------------------------


class StallReports:
    """The reports of one incarnation. Used by the group's thread; `run` runs what writes."""

    def __init__(self, log: GroupLog, run: RunAside) -> None:
        self._log = log
        self._run = run
        self._written: dict[JobId, tuple[list[Stall], float]] = {}
        """What was written last, and when."""
        self._writing: Pending | None = None

    def report(self, stalls: list[Stall], now_s: float, permitted: bool) -> None:
        """Write what has changed; nothing while the group may not act."""
        if not permitted or (self._writing is not None and not self._writing.done()):
            return
        by_job: dict[JobId, list[Stall]] = {job: [] for job in self._written}
        for each in stalls:
            by_job.setdefault(each.job, []).append(each)
        changed = {}
        for job, found in by_job.items():
            found.sort(key=lambda each: (each.reason in _MESSENGERS, each.since_ms))
            del found[STALLS_MAX:]
            before, written_s = self._written.get(job, ([], 0.0))
            due = not before or not found or now_s >= written_s + WRITE_INTERVAL_S
            if due and found != before:
                changed[job] = found
        if changed:
            self._write(changed, now_s)

    def _write(self, changed: dict[JobId, list[Stall]], now_s: float) -> None:
        for job, found in changed.items():
            if found:
                self._written[job] = (found, now_s)
            else:
                self._written.pop(job, None)

        def work() -> None:
            for job, found in changed.items():
                try:
                    publish(self._log, self._log.group, job, found)
                except OnyxError as error:
                    logger.info("what keeps job %s could not be reported: %s", job, error)

        self._writing = self._run(work)


def publish(log: GroupLog, group: GroupId, job: JobId, stalls: list[Stall]) -> None:
    """Put the report of a group about a job in the place of the last one."""
    path = documents.stall(job, group)
    if not stalls:
        log.delete_documents(path)
        return
    before = log.get_document(path)
    data = msgspec.json.encode(stalls)
    log.put_document(path, data, None if before is None else before.version)


# --- facts about a running task -----------------------------------------------------------------

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
        return _of_allocation(facts, task.allocation, task.runtime.source) if task.wired else facts
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


def _of_allocation(facts: Facts, allocation: Allocation, source: Source | None) -> Facts:
    lookups = allocation.lookups
    asks = lookups.title if lookups is not None and lookups.waits else ""
    facts = replace(
        facts, outbox_to=allocation.outbox.waits_for(), asks=asks, left=_left(allocation)
    )
    if source is not None:
        facts = _ahead(facts, allocation, source)
    keeper = allocation.keeper
    if keeper is None:
        return facts
    return replace(
        facts,
        in_flight=facts.in_flight + keeper.emissions.unsettled,
        obstacle=facts.obstacle or keeper.obstacle,
        aggregating=keeper.operator.doing,
    )


def _ahead(facts: Facts, allocation: Allocation, source: Source) -> Facts:
    """Why an input that is ahead of another one waits; of one that says nothing it is a stall."""
    alignment, held_ms = allocation.alignment, source.held_ms
    if alignment is None or held_ms is None:
        return facts
    slowest, ahead_ms = alignment.waits_for(held_ms)
    if ahead_ms is None:
        silent = f"waits for input {slowest}, which has given no event time yet (maxDrift)"
        silent += "; with idleTimeout there others go on until it does"
        return replace(facts, obstacle=facts.obstacle or silent)
    return replace(facts, ahead=f"waits for input {slowest}: {_amount(ahead_ms)} ahead")


_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def _amount(ms: int) -> str:
    unit, size_ms = next((each for each in _UNITS if ms >= each[1]), _UNITS[-1])
    return f"{ms / size_ms:.3g} {unit}"


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


def _undurable(sink: Sink | None) -> int:
    return sink.waiting_segments if sink is not None else 0


def _next_try(source: Source | None, clock: Clock, now_s: float) -> str:
    if source is None or not isfinite(source.rested_s):
        return ""
    return instant(clock.wall_ms() + round((source.rested_s - now_s) * 1000))


def _suspects(work: Work) -> int:
    """The suspects that are still to be tried, the present one included."""
    return int(work.alone) + min(len(work.pieces.waiting), work.pieces.suspects)


def _restarts(status: TaskStatus) -> str:
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
