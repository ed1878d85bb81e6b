"""What tasks and workers have reported of a job, beside the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from immutables import Map

from onyx.base.structs import UNREADABLE, prepared
from onyx.errors import StateError
from onyx.ids import GroupId, JobId
from onyx.log import documents
from onyx.log.interface import ClientLog, Document, LogReader
from onyx.replica.state import Replica
from onyx.reports import codes
from onyx.reports.outcomes import NOTHING, OutcomeReport, TaskTotals, remarks
from onyx.reports.stalls import Stall, cause, sentence

if TYPE_CHECKING:
    from onyx.model.job import Job


@prepared
class _StoredError(msgspec.Struct):
    frames: list[dict[str, Any]] = []


@prepared
class _StoredFailure(msgspec.Struct):
    """What whoever shows a report goes through; `program.failure.report` has all of it."""

    errors: list[_StoredError] = []


def exception(log: ClientLog, job: JobId) -> dict[str, Any] | None:
    """The report that a task stored before it killed its job; None if no task did."""
    document = log.get_document(documents.exception(job))
    if document is None:
        return None
    try:
        msgspec.json.decode(document.data, type=_StoredFailure)
        return msgspec.json.decode(document.data, type=dict[str, Any])
    except UNREADABLE as error:
        return {"job": job, "detail": f"why it was killed cannot be read: {error}"}


def stalls(log: ClientLog, replica: Replica, job: JobId) -> list[Stall]:
    """The tasks of a job that do not advance, as live workers report."""
    allocation = replica.run(job).allocation
    peers = {peer for each in allocation.values() for peer in each}
    found: list[Stall] = []
    for group in log.list_documents(documents.stalls(job)) if peers else ():
        if group not in replica.groups_index:
            continue
        document = log.get_document(documents.stall(job, GroupId(group)))
        if document is not None:
            found += _read(document, list[Stall], [])
    return [each for each in found if each.peer in peers]


def outcomes(log: LogReader, replica: Replica, job: Job, id: JobId) -> tuple[str, ...]:
    """What became of segments that did not go on, as lines; groups that have left included."""
    if (exact := committed_totals(log, job, id)) is not None:
        return tuple(remarks(job, exact))
    found: dict[str, TaskTotals] = {}
    lost = False
    for group in log.list_documents(documents.outcomes(id)):
        document = log.get_document(documents.outcome(id, GroupId(group)))
        report = None if document is None else _read(document, OutcomeReport, None)
        if report is None:
            lost |= document is not None
            continue
        lost |= report.working and report.group not in replica.groups
        for task, its in report.tasks.items():
            found[task] = found.get(task, NOTHING) + its
    return tuple(remarks(job, found, lost))


def committed_totals(log: LogReader, job: Job, id: JobId) -> dict[str, TaskTotals] | None:
    """The counts that a job on Spark has committed with its result; None: there are none."""
    if job.engine != "spark":
        return None
    from onyx.spark.driver.committed import committed

    try:
        last = committed(log, id)
    except StateError:  # the task of the job says that
        return None
    return None if last is None else {task: its.totals for task, its in last[0].tasks.items()}


def code_began(log: LogReader, replica: Replica, job: JobId) -> bytes | None:
    """The note with which code a job began, if its peers have modules."""
    if not codes.total(_codes(replica, job)):
        return None
    document = log.get_document(documents.code(job))
    return None if document is None else document.data


def code_of(replica: Replica, job: JobId, began: bytes | None) -> tuple[dict[str, int], str]:
    """Which code its peers run, and what is to be said of it."""
    found = _codes(replica, job)
    return codes.total(found), codes.warning(found, codes.began_with(began))


def _codes(replica: Replica, job: JobId) -> dict[str, Counter[str]]:
    peers = sorted({peer for each in replica.run(job).allocation.values() for peer in each})
    announced = {peer: replica.peer_sites.get(peer, Map()).get(codes.CODE) for peer in peers}
    return codes.by_pool((replica.peer_tags.get(peer, ()), announced[peer]) for peer in peers)


def why_stalled(replica: Replica, job: JobId, found: Sequence[Stall], now_ms: int) -> str:
    """What keeps a job from advancing, of all that is reported of it; empty if nothing does."""
    root = cause(found, replica.tasks_of(job))
    return "" if root is None else sentence(root, found, now_ms)


def _read(document: Document, hint: Any, without: Any) -> Any:
    """One report that is damaged, or of another version of Onyx, must not hide the others."""
    try:
        return msgspec.json.decode(document.data, type=hint)
    except UNREADABLE:
        return without
