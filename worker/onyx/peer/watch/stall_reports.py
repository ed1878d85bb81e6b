"""What keeps jobs from advancing, beside the log: a small document for each job and group.

A document is written when it changes, and removed when the job advances again.
"""

from __future__ import annotations

import logging

import msgspec

from onyx.errors import OnyxError
from onyx.ids import GroupId, JobId
from onyx.log import job_documents
from onyx.log.interface import GroupLog
from onyx.peer.background import Pending, Run
from onyx.reports.stalls import Reason, Stall

logger = logging.getLogger("onyx.peer")

WRITE_INTERVAL_S = 5.0
"""A report that changes is written anew at most so often."""
STALLS_MAX = 32
"""In one report; the causes first."""


class StallReports:
    """The reports of one incarnation. Used by the group's thread; `run` runs what writes."""

    def __init__(self, log: GroupLog, run: Run) -> None:
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
