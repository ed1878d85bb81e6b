"""Statuses of jobs: what the replica says of them, and what tasks and workers have reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from onyx.errors import OnyxError, UserError
from onyx.ids import GroupId, JobId, Position
from onyx.log import job_documents
from onyx.log.interface import ClientLog
from onyx.model.job import Job
from onyx.model.parsing.job import parse_mapping
from onyx.path_names import path_name
from onyx.replica.scheduling.explain import why_waiting
from onyx.replica.state import Replica
from onyx.seams import SystemClock
from onyx.stalls import Stall, cause, sentence

JobState = Literal["running", "waiting", "suspended", "draining", "completed", "killed", "unknown"]
"""A `suspended` job has no peers, whether it drains or not. A `draining` job may have peers or wait
for some."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job as of a position of the log."""

    id: JobId
    name: str
    state: JobState
    as_of: Position
    peers: int = 0
    waiting_for: str = ""
    """Why the job has no peers: what it needs and what there is, or that it is suspended. Else why
    its manifest cannot be read."""
    exception: dict[str, Any] | None = None
    """The report of the task that killed it, if a task did."""
    stalled: str = ""
    """Why it does not advance, as workers report; empty while it advances or waits."""
    stalls: tuple[Stall, ...] = ()
    """Every task on every peer that workers report as stalled."""
    engine: Literal["peers", "spark"] = "peers"
    """What runs it."""


def digest_of(replica: Replica, job: JobId) -> str:
    """The digest of a job's manifest in the chunk store.

    Raises:
        UserError: no job has this id.
    """
    digest = replica.digest_of(JobId(path_name(job, "the id of a job")))
    if digest is None:
        raise UserError(f"there is no job {job}: `onyx jobs` lists those that are known")
    return digest


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


def status_at(log: ClientLog, replica: Replica, job: JobId) -> JobStatus:
    """The status of a job as of a replica."""
    state: JobState = "unknown"
    waiting_for = None
    peers = sum(map(len, replica.run(job).allocation.values()))
    if job in replica.completed_jobs:
        state = "completed"
    elif job in replica.killed_jobs:
        state = "killed"
    elif job in replica.jobs:
        waiting_for = why_waiting(replica, job)
        state = _state_of(replica, job, peers)
    report = exception(log, job) if state == "killed" else None
    name, unreadable = _name(log, replica, job)
    remark = waiting_for or unreadable
    found = stalls(log, replica, job) if job in replica.jobs else []
    return JobStatus(
        job,
        name,
        state,
        replica.version,
        peers,
        remark,
        report,
        why_stalled(replica, job, found),
        tuple(found),
        _engine(replica, job),
    )


def _engine(replica: Replica, job: JobId) -> Literal["peers", "spark"]:
    """A job on Spark has one task, which is input and output at once."""
    spec = None if job not in replica.records else replica.spec(job)
    return "spark" if spec is not None and spec.inputs == spec.outputs else "peers"


def _name(log: ClientLog, replica: Replica, job: JobId) -> tuple[str, str]:
    """The name of a job, and why it cannot be read: one damaged manifest must not hide other
    jobs."""
    if job not in replica.records:
        return "", ""
    try:
        return manifest(log, replica, job).name, ""
    except (OnyxError, msgspec.DecodeError) as error:
        return "", f"its manifest cannot be read: {error}"


def manifest(log: ClientLog, replica: Replica, job: JobId) -> Job:
    """A job as it was submitted. Raises like `digest_of`."""
    digest = digest_of(replica, job)
    return parse_mapping(msgspec.json.decode(log.get_chunk(digest)))


def why_stalled(replica: Replica, job: JobId, found: Sequence[Stall]) -> str:
    """What keeps a job from advancing, of all that is reported of it; empty if nothing does."""
    root = cause(found, replica.tasks_of(job))
    return "" if root is None else sentence(root, found, SystemClock().wall_ms())


def _state_of(replica: Replica, job: JobId, peers: int) -> JobState:
    """Of a job that has not ended."""
    if replica.run(job).suspended:
        return "suspended"
    if replica.run(job).draining:
        return "draining"
    return "running" if peers else "waiting"
