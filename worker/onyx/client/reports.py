"""What tasks and workers have reported of a job, beside the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from immutables import Map

from onyx import codes
from onyx.ids import GroupId, JobId
from onyx.log import job_documents
from onyx.log.interface import ClientLog
from onyx.outcomes import NOTHING, TaskTotals
from onyx.replica.state import Replica
from onyx.seams import SystemClock
from onyx.stalls import Stall, cause, sentence


def exception(log: ClientLog, job: JobId) -> dict[str, Any] | None:
    """The report that a task stored before it killed its job; None if no task did."""
    document = log.get_document(job_documents.exception(job))
    if document is None:
        return None
    report: dict[str, Any] = msgspec.json.decode(document.data)
    return report


def stalls(log: ClientLog, replica: Replica, job: JobId) -> list[Stall]:
    """The tasks of a job that do not advance, as live workers report."""
    allocation = replica.run(job).allocation
    peers = {peer for each in allocation.values() for peer in each}
    found: list[Stall] = []
    for group in log.list_documents(job_documents.stalls(job)) if peers else ():
        if group not in replica.groups_index:
            continue
        document = log.get_document(job_documents.stall(job, GroupId(group)))
        if document is not None:
            found += msgspec.json.decode(document.data, type=list[Stall])
    return [each for each in found if each.peer in peers]


def totals(log: ClientLog, job: JobId) -> dict[str, TaskTotals]:
    """What the tasks of a job have done, if segments of theirs did not go on; groups that have left
    included."""
    found: dict[str, TaskTotals] = {}
    for group in log.list_documents(job_documents.outcomes(job)):
        document = log.get_document(job_documents.outcome(job, GroupId(group)))
        if document is not None:
            for task, its in msgspec.json.decode(document.data, type=dict[str, TaskTotals]).items():
                found[task] = found.get(task, NOTHING) + its
    return found


def code_of(log: ClientLog, replica: Replica, job: JobId) -> tuple[dict[str, int], str]:
    """Which code its peers run, and what is to be said of it."""
    peers = sorted({peer for each in replica.run(job).allocation.values() for peer in each})
    announced = {peer: replica.peer_sites.get(peer, Map()).get(codes.CODE) for peer in peers}
    found = codes.by_pool((replica.peer_tags.get(peer, ()), announced[peer]) for peer in peers)
    total = codes.total(found)
    document = log.get_document(job_documents.code(job)) if total else None
    began = codes.began_with(None if document is None else document.data)
    return total, codes.warning(found, began)


def why_stalled(replica: Replica, job: JobId, found: Sequence[Stall]) -> str:
    """What keeps a job from advancing, of all that is reported of it; empty if nothing does."""
    root = cause(found, replica.tasks_of(job))
    return "" if root is None else sentence(root, found, SystemClock().wall_ms())
