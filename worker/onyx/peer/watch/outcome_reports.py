"""Reports what became of segments that did not go on: those in dead letters, those that matched no
flow condition, and late ones.

One small document for each job and supervisor, beside the log, so that `onyx jobs` shows it also
when the workers have gone. It is written when there is something to say and it has changed. It
says all that stands in the memory of the supervisor (`kept_counts`), so the next process reports
what one that was killed had not. With the supervisor goes what it had not reported; who reads the
report knows that from the group, which was working and is no member any more.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping

import msgspec
from msgspec.structs import replace

from onyx.base.seams import Clock
from onyx.errors import OnyxError
from onyx.ids import JobId
from onyx.log import documents
from onyx.log.interface import GroupLog
from onyx.peer.life import Pending, RunAside
from onyx.reports.outcomes import OutcomeReport
from onyx.telemetry.kept_counts import KeptCounts

logger = logging.getLogger("onyx.peer")

LOOK_INTERVAL_S = 1.0
WRITE_INTERVAL_S = 10.0
"""A report that changes is written anew at most so often; the first one at once."""


class OutcomeReports:
    """The reports of one incarnation. Used by the group's thread.

    Args:
        counts: of this process; None: nobody counts, and nothing is reported.
        background: runs what writes.
    """

    def __init__(
        self, log: GroupLog, clock: Clock, background: RunAside, counts: KeptCounts | None
    ) -> None:
        self._log = log
        self._clock = clock
        self._background = background
        self._counts = counts
        self._known: Container[JobId] = ()
        self._written: dict[JobId, tuple[OutcomeReport, float]] = {}
        self._writing: Pending | None = None
        self._next_s = 0.0

    def look(self, known: Container[JobId], permitted: bool) -> None:
        """Report what is new, if it is time.

        Args:
            known: jobs that are not forgotten.
        """
        self._known = known
        now_s = self._clock.monotonic_s()
        if self._counts is None or not permitted or now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_INTERVAL_S
        if self._writing is None or self._writing.done():
            reports = self._reports(self._counts)
            due = {job: its for job, its in reports.items() if self._is_due(job, its, now_s)}
            if due:
                self._write(self._counts, due, now_s)

    def end(self) -> None:
        """The group leaves: report what is new, whenever it was reported last, and that nothing
        follows."""
        if self._counts is None:
            return
        reports = self._reports(self._counts)
        last = {job: replace(its, working=False) for job, its in reports.items()}
        news = {job: its for job, its in last.items() if its != self._last(job)}
        if news:
            self._write(self._counts, news, self._clock.monotonic_s())

    def _reports(self, counts: KeptCounts) -> dict[JobId, OutcomeReport]:
        found: dict[JobId, OutcomeReport] = {}
        known = (key for key in counts.tasks() if key[0] in self._known)
        for (job, task), its in counts.totals(known).items():
            if its.remarkable:
                working = counts.works_on(job)
                found.setdefault(job, OutcomeReport(self._log.group, working, {})).tasks[task] = its
        return found

    def _last(self, job: JobId) -> OutcomeReport | None:
        return self._written[job][0] if job in self._written else None

    def _is_due(self, job: JobId, report: OutcomeReport, now_s: float) -> bool:
        last = self._last(job)
        if last is None or last.working != report.working:
            return True
        its_time = now_s >= self._written[job][1] + WRITE_INTERVAL_S
        return its_time and _said(last) != _said(report)

    def _write(
        self, counts: KeptCounts, reports: Mapping[JobId, OutcomeReport], now_s: float
    ) -> None:
        for job, report in reports.items():
            self._written[job] = (report, now_s)
        name = counts.name(self._log.group)

        def work() -> None:
            for job, report in reports.items():
                path = documents.outcome(job, name)
                try:
                    before = self._log.get_document(path)
                    version = None if before is None else before.version
                    self._log.put_document(path, msgspec.json.encode(report), version)
                except OnyxError as error:
                    logger.info("what job %s dropped could not be reported: %s", job, error)

        self._writing = self._background(work)


def _said(report: OutcomeReport) -> dict[str, tuple[int, ...]]:
    """What a report is written for."""
    return {task: its.said for task, its in report.tasks.items()}
