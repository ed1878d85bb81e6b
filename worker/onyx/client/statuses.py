"""Statuses of jobs: what the replica says of them, and what tasks and workers have reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onyx.base.seams import SystemClock
from onyx.client import failure_text
from onyx.client.deaths import read_deaths, words_of
from onyx.client.manifests import readable
from onyx.client.reports import code_began, code_of, exception, outcomes, stalls, why_stalled
from onyx.ids import JobId, Position
from onyx.log.interface import ClientLog
from onyx.replica.jobs import has_completed, listed_jobs, upgraded_by
from onyx.replica.scheduling.explain import why_paused, why_waiting
from onyx.replica.state import Replica
from onyx.reports.deaths import Death
from onyx.reports.measures import JobMeasures, PeerMeasures, TaskMeasures
from onyx.reports.stalls import Stall

if TYPE_CHECKING:
    from onyx.model.job import Job

JobState = Literal[
    "running",
    "waiting",
    "suspended",
    "paused",
    "draining",
    "completed",
    "failed",
    "killed",
    "unknown",
]
"""A `suspended` job has no peers, whether it drains or not. A `draining` job may have peers or wait
for some. The inputs of a `paused` one read nothing new: an upgrade waits until it is at
rest. A job has `failed` when one of its tasks has ended it; else somebody has `killed` it."""


class JobStatus(msgspec.Struct, frozen=True):
    """The status of a job as of a position of the log."""

    id: JobId
    name: str
    state: JobState
    as_of: Position
    peers: int = 0
    waiting_for: str = ""
    """Why the job has no peers: what it needs and what there is, or that it is suspended; or what a
    paused one waits for. Else why its manifest cannot be read."""
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
    that sent some to dead letters, dropped some, or got some late. It begins with `about` if
    segments were read again, which count again, or a worker was lost with what it had counted."""
    code: dict[str, int] = msgspec.field(default_factory=dict)
    """Hashes of the code that its peers run, with the number of peers; empty if no worker has
    modules."""
    code_warning: str = ""
    """Its peers run different code, or other code than it began with."""
    options: dict[str, dict[str, int | None]] = msgspec.field(default_factory=dict)
    """Values that were set while it runs and that its manifest does not give, by task; None for a
    key that is left out."""
    measured: JobMeasures | None = None
    """How fast it is and how far behind, as workers measure it, where they were asked."""
    tasks: tuple[TaskMeasures, ...] = ()
    """What workers measure of each task."""
    at_work: tuple[PeerMeasures, ...] = ()
    """What each of its peers does at the moment, as far as workers have answered."""
    upgraded_by: tuple[JobId, ...] = ()
    """Jobs that were submitted to go on with its state."""


class JobReports(msgspec.Struct, frozen=True):
    """All that lies beside the log of a job, as far as its status says it."""

    name: str = ""
    unreadable: str = ""
    """Why its manifest cannot be read."""
    exception: dict[str, Any] | None = None
    stalls: tuple[Stall, ...] = ()
    deaths: tuple[Death, ...] = ()
    """How worker processes have died, whatever they worked on."""
    outcomes: tuple[str, ...] = ()
    code_began: bytes | None = None
    options: dict[str, dict[str, int | None]] = msgspec.field(default_factory=dict)


def statuses(log: ClientLog, replica: Replica) -> list[JobStatus]:
    """The status of every job that the replica knows, in the order of submission."""
    known = listed_jobs(replica)
    deaths = read_deaths(log)
    return [status_at(log, replica, job, deaths) for job in known]


def status_at(
    log: ClientLog, replica: Replica, job: JobId, deaths: Sequence[Death] | None = None
) -> JobStatus:
    """The status of a job as of a replica.

    Args:
        deaths: of worker processes, as supervisors have reported; None to look.
    """
    known, unreadable = readable(log, replica, job)
    runs = job in replica.jobs
    reports = JobReports(
        "" if known is None else known.name,
        unreadable,
        exception(log, job) if has_completed(replica, job) is False else None,
        tuple(stalls(log, replica, job)) if runs else (),
        tuple(read_deaths(log) if deaths is None else deaths) if runs else (),
        () if known is None else outcomes(log, replica, known, job),
        code_began(log, replica, job),
        {} if known is None else changed_options(replica, job, known),
    )
    return status_of(replica, job, reports, SystemClock().wall_ms())


def status_of(replica: Replica, job: JobId, reports: JobReports, now_ms: int) -> JobStatus:
    """The status of a job as of a replica and what was read beside it; pure."""
    state: JobState = "unknown"
    waiting_for = None
    peers = sum(map(len, replica.run(job).allocation.values()))
    completed = has_completed(replica, job)
    if completed is not None:
        failed: JobState = "killed" if reports.exception is None else "failed"
        state = "completed" if completed else failed
    elif job in replica.jobs:
        waiting_for = why_waiting(replica, job) or why_paused(replica, job)
        state = _state_of(replica, job, peers)
    code, code_warning = code_of(replica, job, reports.code_began)
    return JobStatus(
        job,
        reports.name,
        state,
        replica.version,
        peers,
        waiting_for or reports.unreadable,
        reports.exception,
        why_stalled(replica, job, reports.stalls, now_ms),
        reports.stalls,
        _engine(replica, job),
        words_of(reports.deaths, job, now_ms) if job in replica.jobs else "",
        reports.outcomes,
        code,
        code_warning,
        reports.options,
        upgraded_by=upgraded_by(replica, job) if completed is False else (),
    )


def changed_options(
    replica: Replica, job: JobId, manifest: Job
) -> dict[str, dict[str, int | None]]:
    """The values of a running job that its manifest does not give."""
    run = replica.run(job)
    if not (run.options or run.declared):
        return {}
    from onyx.model.changing import differences, with_options

    return differences(manifest, with_options(manifest, run.options, bool(run.declared)))


def _engine(replica: Replica, job: JobId) -> Literal["peers", "spark"]:
    """A job on Spark has one task, which is input and output at once."""
    spec = None if job not in replica.records else replica.spec(job)
    return "spark" if spec is not None and spec.inputs == spec.outputs else "peers"


def _state_of(replica: Replica, job: JobId, peers: int) -> JobState:
    """The state of a job that has not ended."""
    if replica.run(job).suspended:
        return "suspended"
    if replica.run(job).draining:
        return "draining"
    if replica.run(job).is_paused:
        return "paused"
    return "running" if peers else "waiting"


def remarks(status: JobStatus) -> str:
    """Why a job waits, why it does not advance, or what killed it; which job upgrades it; what is
    wrong with the code of its peers; what became of segments that did not go on; and which values
    were set."""
    return "; ".join(filter(None, (why(status), *besides(status))))


def besides(status: JobStatus) -> tuple[str, ...]:
    """What is to be said of a job beside why it is as it is; some may be empty."""
    into = " and ".join(status.upgraded_by)
    upgraded = f"upgraded: job {into} has its state" if into else ""
    return (upgraded, status.code_warning, *status.outcomes, options(status))


def options(status: JobStatus) -> str:
    """The values that were set while the job runs: `set: read maxPending=500`."""
    found = [
        f"{task} {' '.join(f'{key}={_value(value)}' for key, value in values.items())}"
        for task, values in status.options.items()
    ]
    return f"set: {', '.join(found)}" if found else ""


def _value(value: int | None) -> str:
    return "default" if value is None else str(value)


def in_a_sentence(status: JobStatus, name: str) -> str:
    """How a job is, and why, under the name by which it was asked for."""
    how = "has failed" if status.state == "failed" else f"is {status.state}"
    return ": ".join(filter(None, (f"job {name} {how}", why(status))))


def why(status: JobStatus) -> str:
    """Why a job waits, why it does not advance, or what killed it."""
    if status.exception is None:
        return "; ".join(filter(None, (status.waiting_for or status.stalled, status.deaths)))
    return failure_text.sentence(status.exception)
