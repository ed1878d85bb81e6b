"""Reports what became of segments that did not go on: those in dead letters, those that matched no
flow condition, and late ones.

One small document for each job and group, beside the log, so that `onyx jobs` shows it also when
the workers have gone. It is written when there is something to say and it has changed. The counts
are those of `kept_counts`, less what processes before this one had counted: their groups have
reports of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from onyx.errors import OnyxError
from onyx.ids import JobId, TaskName
from onyx.log import job_documents
from onyx.log.interface import GroupLog
from onyx.outcomes import TaskTotals
from onyx.peer.background import Pending, Run
from onyx.seams import Clock
from onyx.telemetry.kept_counts import KeptCounts, Key

logger = logging.getLogger("onyx.peer")

LOOK_INTERVAL_S = 1.0
WRITE_INTERVAL_S = 10.0
"""A report that changes is written anew at most so often; the first one at once."""

_Report = dict[TaskName, TaskTotals]


class OutcomeReports:
    """The reports of one incarnation. Used by the group's thread.

    Args:
        counts: of this process; None: nobody counts, and nothing is reported.
        background: runs what writes.
    """

    def __init__(
        self, log: GroupLog, clock: Clock, background: Run, counts: KeptCounts | None
    ) -> None:
        self._log = log
        self._clock = clock
        self._background = background
        self._counts = counts
        self._before: dict[Key, TaskTotals] = {}
        """The totals of the incarnations before this one."""
        self._written: dict[JobId, tuple[_Report, float]] = {}
        self._writing: Pending | None = None
        self._next_s = 0.0
        if counts is not None:
            self._before = counts.totals(counts.known)

    def look(self, permitted: bool) -> None:
        """Report what is new, if it is time."""
        now_s = self._clock.monotonic_s()
        if self._counts is None or not permitted or now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_INTERVAL_S
        if self._writing is None or self._writing.done():
            due = {job: its for job, its in self._news().items() if self._is_due(job, its, now_s)}
            if due:
                self._write(due, now_s)

    def end(self) -> None:
        """The group leaves: report what is new, whenever it was reported last."""
        if self._counts is not None and (news := self._news()):
            self._write(news, self._clock.monotonic_s())

    def _news(self) -> dict[JobId, _Report]:
        assert self._counts is not None, "asked by callers"
        found: dict[JobId, _Report] = {}
        for key, totals in self._counts.totals(tuple(self._counts.known)).items():
            its = totals.since(self._before.get(key) or self._counts.known[key])
            if its.remarkable:
                job, task = key
                found.setdefault(job, {})[task] = its
        return {job: its for job, its in found.items() if its != self._last(job)}

    def _last(self, job: JobId) -> _Report:
        return self._written.get(job, ({}, 0.0))[0]

    def _is_due(self, job: JobId, report: _Report, now_s: float) -> bool:
        before = self._written.get(job)
        if before is None or now_s >= before[1] + WRITE_INTERVAL_S:
            return before is None or _said(before[0]) != _said(report)
        return False

    def _write(self, reports: Mapping[JobId, _Report], now_s: float) -> None:
        for job, report in reports.items():
            self._written[job] = (report, now_s)

        def work() -> None:
            for job, report in reports.items():
                path = job_documents.outcome(job, self._log.group)
                try:
                    before = self._log.get_document(path)
                    version = None if before is None else before.version
                    self._log.put_document(path, msgspec.json.encode(report), version)
                except OnyxError as error:
                    logger.info("what job %s dropped could not be reported: %s", job, error)

        self._writing = self._background(work)


def _said(report: _Report) -> dict[TaskName, tuple[int, int, int]]:
    """What a report is written for: segments that go on change all the time."""
    return {task: (its.dead_letters, its.unmatched, its.late) for task, its in report.items()}
