"""Watches the tasks of a group and reports those that do not advance, with the reason.

Runs on the group's own thread, once a second: the thread of a task may be inside a function that
never returns. While all tasks advance, nothing is reported. A report is one small document for each
job, beside the log. It is written when it changes, and removed when the task advances again;
readers ignore the reports of groups that have left. So everybody who can read ZooKeeper sees why a
job does not advance, also when no worker answers.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec

from onyx.errors import OnyxError
from onyx.ids import GroupId, JobId, PeerId, TaskName
from onyx.log import job_documents
from onyx.log.interface import GroupLog
from onyx.model.locations import without_secrets
from onyx.peer.stall_facts import Mark, facts_of, held_by, mark_of, source_of
from onyx.peer.task_runner import TaskRunner
from onyx.program.exceptions import frames_of, shown
from onyx.program.phases import Phase
from onyx.replica.state import Replica
from onyx.seams import Clock
from onyx.stalls import SLOW, Frame, Reason, Stall
from onyx.task.batch_task import BatchTask
from onyx.task.diagnosis import BUSY_S, allowed_s, diagnose, is_alone
from onyx.task.task import Task
from onyx.telemetry.catalog import JOB_STALLED
from onyx.telemetry.interface import GroupMetrics

logger = logging.getLogger("onyx.peer")

LOOK_INTERVAL_S = 1.0
WRITE_INTERVAL_S = 5.0
"""A report that changes is written anew at most so often."""
STALLS_MAX = 32
"""In one report; the causes first."""
WHY_CHARACTERS_MAX = 800
LOG_INTERVAL_S = 60.0

Background = Callable[[Callable[[], None]], Future[None]]


@dataclass(slots=True)
class _Watched:
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
        log: GroupLog,
        metrics: GroupMetrics,
        clock: Clock,
        background: Background,
        stalled_after_s: float,
    ) -> None:
        self._log = log
        self._metrics = metrics
        self._clock = clock
        self._background = background
        self._after_s = stalled_after_s
        self._next_s = 0.0
        self._tasks: dict[tuple[PeerId, JobId, TaskName], _Watched] = {}
        self._written: dict[JobId, tuple[list[Stall], float]] = {}
        """What was written last, and when."""
        self._writing: Future[None] | None = None

    def look(self, runners: Collection[TaskRunner], replica: Replica, permitted: bool) -> None:
        """Look at all tasks, if it is time."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_INTERVAL_S
        stalls: list[tuple[str, Stall, float]] = []
        keys = set()
        taken_by = _thread_taken_by(runners, now_s)
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
        self._report([each for _, each, _ in stalls], now_s, permitted)

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
        in_time = now_s - watched.moved_s < self._after_s + _allowed_s(task, reason)
        if not in_time:
            self._log_stall(task, watched, reason, why, now_s)
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
            stack=_stack(runner) if reason in SLOW and facts.step_s else (),
        )

    def _log_stall(
        self, task: Task, watched: _Watched, reason: Reason, why: str, now_s: float
    ) -> None:
        again_s = None if watched.logged_s is None else watched.logged_s + LOG_INTERVAL_S
        if reason is watched.reason and again_s is not None and now_s < again_s:
            return
        watched.reason, watched.logged_s = reason, now_s
        logger.info(
            "job %s, task %s, peer %s does not advance for %.0f s: %s",
            task.job_id,
            task.name,
            task.peer,
            now_s - watched.moved_s,
            without_secrets(why),
        )

    def _report(self, stalls: list[Stall], now_s: float, permitted: bool) -> None:
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

        self._writing = self._background(work)


_MESSENGERS = frozenset({Reason.PEERS, Reason.THREAD, Reason.DOWNSTREAM, Reason.COMPLETIONS})


def publish(log: GroupLog, group: GroupId, job: JobId, stalls: list[Stall]) -> None:
    """Put the report of a group about a job in the place of the last one."""
    path = job_documents.stall(job, group)
    if not stalls:
        log.delete_documents(path)
        return
    before = log.get_document(path)
    data = msgspec.json.encode(stalls)
    log.put_document(path, data, None if before is None else before.version)


def _longest(stalls: Sequence[tuple[str, Stall, float]]) -> dict[tuple[str, ...], float]:
    """Seconds by job, task and reason, of those that last longer than their reason allows."""
    longest: dict[tuple[str, ...], float] = {}
    for name, each, age_s in stalls:
        if not each.in_time:
            labels = name, each.task, each.reason
            longest[labels] = max(age_s, longest.get(labels, 0.0))
    return longest


def _allowed_s(task: Task, reason: Reason) -> float:
    if not isinstance(task, BatchTask) or not task.loaded:
        return 0.0
    program = task.runtime.program
    return allowed_s(reason, program.entry, program.job)


def _thread_taken_by(runners: Collection[TaskRunner], now_s: float) -> TaskName | None:
    """The task that keeps the shared thread for too long."""
    for runner in runners:
        since_s = runner.task.status.step_since_s
        if runner.shared and since_s is not None and now_s - since_s >= BUSY_S:
            return runner.task.name
    return None


def _stack(runner: TaskRunner) -> tuple[Frame, ...]:
    frame: Any = sys._current_frames().get(runner.thread or 0)
    return tuple(Frame(**each) for each in frames_of(frame))


def _rounded(wall_ms: int) -> int:
    """Two looks at the same moment in the past come to the same."""
    return round(wall_ms, -3)
