"""Watches the tasks of a group and reports those that do not advance, with the reason.

Runs on the group's own thread, once a second: the thread of a task may be inside a function that
never returns. While all tasks advance, nothing is reported. Reports are documents beside the log
(`stall_reports`); readers ignore those of groups that have left. So everybody who can read
ZooKeeper sees why a job does not advance, also when no worker answers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

import msgspec

from onyx.base.seams import Clock
from onyx.ids import JobId, PeerId, TaskName
from onyx.model.locations import without_secrets
from onyx.peer.watch.stall_facts import Mark, allowed_s, facts_of, held_by, mark_of, source_of
from onyx.peer.watch.stall_reports import StallReports
from onyx.peer.work.task_runner import TaskRunner, busiest, stack_of
from onyx.program.exceptions import shown
from onyx.program.phases import Phase
from onyx.replica.state import Replica
from onyx.reports.stalls import SLOW, Reason, Stall
from onyx.task.diagnosis import diagnose, is_alone
from onyx.task.task import Task
from onyx.telemetry.catalog import JOB_STALLED
from onyx.telemetry.interface import GroupMetrics

logger = logging.getLogger("onyx.peer")

LOOK_INTERVAL_S = 1.0
WHY_CHARACTERS_MAX = 800
LOG_INTERVAL_S = 60.0


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
            stack=stack_of(runner) if reason in SLOW and facts.step_s else (),
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
