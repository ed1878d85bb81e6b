"""Statuses of jobs: what the replica says of them, and what tasks and workers have reported.

`onyx jobs` needs nothing else of the engine, and is often called where there is little CPU. So what
parses manifests, which takes long to import, is imported when there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from immutables import Map

from onyx import codes
from onyx.client.deaths import read_deaths
from onyx.deaths import Death, concerning
from onyx.deaths import sentence as deaths_sentence
from onyx.errors import OnyxError, UserError
from onyx.ids import GroupId, JobId, Position
from onyx.log import job_documents
from onyx.log.interface import ClientLog
from onyx.outcomes import NOTHING, TaskTotals, remarks
from onyx.path_names import path_name
from onyx.replica.jobs import has_completed
from onyx.replica.scheduling.explain import why_waiting
from onyx.replica.state import Replica
from onyx.seams import SystemClock
from onyx.stalls import Stall, cause, sentence

if TYPE_CHECKING:
    from onyx.model.job import Job

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
    deaths: str = ""
    """Worker processes that have died lately, of those that may have to do with it."""
    outcomes: tuple[str, ...] = ()
    """What became of segments that did not go on, as workers have reported: a line for each task
    that sent some to dead letters, dropped some, or got some late."""
    code: dict[str, int] = field(default_factory=dict)
    """Hashes of the code that its peers run, with the number of peers; empty if no worker has
    modules."""
    code_warning: str = ""
    """Its peers run different code, or other code than it began with."""


def digest_of(replica: Replica, job: JobId) -> str:
    """The digest of a job's manifest in the chunk store.

    Raises:
        UserError: no job has this id.
    """
    digest = replica.digest_of(JobId(path_name(job, "the id of a job")))
    if digest is None:
        raise UserError(absent(replica, job))
    return digest


def absent(replica: Replica, job: JobId) -> str:
    """Why nothing is known of a job but its id."""
    completed = has_completed(replica, job)
    if completed is None:
        return f"there is no job {job}: `onyx jobs` lists those that are known"
    how = "has completed" if completed else "was killed"
    return f"job {job} {how}, and has been collected since: no more is known of it"


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


def statuses(log: ClientLog, replica: Replica) -> list[JobStatus]:
    """The status of every job that the replica knows, in the order of submission."""
    known = (*replica.jobs, *replica.completed_jobs, *replica.killed_jobs)
    deaths = read_deaths(log)
    return [status_at(log, replica, job, deaths) for job in known]


def status_at(
    log: ClientLog, replica: Replica, job: JobId, deaths: Sequence[Death] | None = None
) -> JobStatus:
    """The status of a job as of a replica.

    Args:
        deaths: of worker processes, as supervisors have reported; None to look.
    """
    state: JobState = "unknown"
    waiting_for = None
    peers = sum(map(len, replica.run(job).allocation.values()))
    completed = has_completed(replica, job)
    if completed is not None:
        state = "completed" if completed else "killed"
    elif job in replica.jobs:
        waiting_for = why_waiting(replica, job)
        state = _state_of(replica, job, peers)
    report = exception(log, job) if state == "killed" else None
    known, unreadable = _known(log, replica, job)
    remark = waiting_for or unreadable
    found = stalls(log, replica, job) if job in replica.jobs else []
    code, code_warning = _code(log, replica, job)
    return JobStatus(
        job,
        "" if known is None else known.name,
        state,
        replica.version,
        peers,
        remark,
        report,
        why_stalled(replica, job, found),
        tuple(found),
        _engine(replica, job),
        _died(log, job, deaths) if job in replica.jobs else "",
        () if known is None else tuple(remarks(known, totals(log, job))),
        code,
        code_warning,
    )


def _code(log: ClientLog, replica: Replica, job: JobId) -> tuple[dict[str, int], str]:
    """Which code its peers run, and what is to be said of it."""
    peers = sorted({peer for each in replica.run(job).allocation.values() for peer in each})
    announced = {peer: replica.peer_sites.get(peer, Map()).get(codes.CODE) for peer in peers}
    found = codes.by_pool((replica.peer_tags.get(peer, ()), announced[peer]) for peer in peers)
    total = codes.total(found)
    document = log.get_document(job_documents.code(job)) if total else None
    began = codes.began_with(None if document is None else document.data)
    return total, codes.warning(found, began)


def _died(log: ClientLog, job: JobId, deaths: Sequence[Death] | None) -> str:
    known = read_deaths(log) if deaths is None else deaths
    return deaths_sentence(concerning(known, job, SystemClock().wall_ms()))


def _engine(replica: Replica, job: JobId) -> Literal["peers", "spark"]:
    """A job on Spark has one task, which is input and output at once."""
    spec = None if job not in replica.records else replica.spec(job)
    return "spark" if spec is not None and spec.inputs == spec.outputs else "peers"


def _known(log: ClientLog, replica: Replica, job: JobId) -> tuple[Job | None, str]:
    """A job, or why it cannot be read: one damaged manifest must not hide other jobs."""
    if job not in replica.records:
        return None, ""
    try:
        return manifest(log, replica, job), ""
    except (OnyxError, msgspec.DecodeError) as error:
        return None, f"its manifest cannot be read: {error}"


def manifest(log: ClientLog, replica: Replica, job: JobId) -> Job:
    """A job as it was submitted. Raises like `digest_of`."""
    from onyx.model.parsing.job import parse_mapping

    digest = digest_of(replica, job)
    return parse_mapping(msgspec.json.decode(log.get_chunk(digest)))


def why_stalled(replica: Replica, job: JobId, found: Sequence[Stall]) -> str:
    """What keeps a job from advancing, of all that is reported of it; empty if nothing does."""
    root = cause(found, replica.tasks_of(job))
    return "" if root is None else sentence(root, found, SystemClock().wall_ms())


def _state_of(replica: Replica, job: JobId, peers: int) -> JobState:
    """The state of a job that has not ended."""
    if replica.run(job).suspended:
        return "suspended"
    if replica.run(job).draining:
        return "draining"
    return "running" if peers else "waiting"
