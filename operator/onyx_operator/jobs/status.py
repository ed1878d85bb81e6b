"""Step 4 for an OnyxJob: its status, from what was observed and the last plan, and the events that
follow from its change, one for each new reason. Pure.

The status is a function of the present, but for what is kept: when a condition last changed, when
the job was submitted and ended, and how far it was behind, as long as that is about right. Equal
statuses are not written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onyx.model.crd.status import TASKS_MAX
from onyx_operator.conditions import KubeEvent, Truth, Verdict, by_type, cut, dated
from onyx_operator.jobs.observed import JobObservation, is_of
from onyx_operator.jobs.plan import JobPlan
from onyx_operator.jobs.record import SubmissionRecord, identity
from onyx_operator.jobs.spec import Spec
from onyx_operator.kube import seconds, timestamp
from onyx_operator.logs.state import JobLag, Log, LogJob, Trouble

_WITH_PEERS = ("Allocated", "Running", "Advancing")
_QUIET = (
    "Submitted",
    "WaitingForPeers",
    "Starting",
    "Connecting",
    "Draining",
    "Suspended",
    "Deleted",
)
"""Reasons that pass at once, or that the event of an action has reported already."""
_WRONG_PHASES = ("Failed", "Invalid", "Unknown")
_WRONG_REASONS = (
    "Displaced",
    "OutOfMemory",
    "WorkersDie",
    "UpgradeRefused",
    "SavepointRefused",
    "BackOff",
    "Retrying",
)
_WRONG_CLUSTERS = (
    "ClusterNotFound",
    "ClusterRefused",
    "ClusterNotReady",
    "LogUnreachable",
    "TooManyClusters",
    "TenancyTaken",
)
_WARNING = frozenset((*_WRONG_PHASES, *_WRONG_REASONS, *_WRONG_CLUSTERS))


def status(seen: JobObservation, plan: JobPlan) -> dict[str, Any]:
    """The whole status after a plan has been carried out."""
    spec, record, log, before = seen.spec, seen.record, seen.log, seen.before
    if _is_final(seen):
        return dict(before)
    job = log.job(record.job_id) if isinstance(log, Log) else None
    now = timestamp(seen.now_s)
    found: dict[str, Any] = {
        "observedGeneration": spec.generation,
        "phase": plan.phase,
        "reason": plan.reason,
        "message": cut(_stalled(plan, job) or plan.message),
        **_record(record, job, now),
        **_savepoint(before, record, job),
        **_counters(before, record, log, job),
        **_lag(before, record, job, seen.now_s),
        **({"requests": list(seen.entrances)} if seen.entrances else {}),
    }
    verdicts = _conditions(spec, record, plan, log, job)
    found["conditions"] = dated(verdicts, before, spec.generation, now)
    return found


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[KubeEvent]:
    """The events between two statuses."""
    phase, reason = after["phase"], after["reason"]
    if (before.get("phase"), before.get("reason")) == (phase, reason) or reason in _QUIET:
        return
    invalid = by_type(after).get("Validated", {}).get("status") == "False"
    yield KubeEvent(reason, after["message"], invalid or is_warning(phase, reason))


def is_warning(phase: str, reason: str = "") -> bool:
    """Whether something is wrong with a job in this phase and for this reason."""
    return not _WARNING.isdisjoint((phase, reason))


def _is_final(seen: JobObservation) -> bool:
    """Whether the status of a job that has ended is complete: a log that cannot be reached changes
    nothing of it."""
    ended = seen.record.finished and is_of(seen.spec, seen.record)
    return isinstance(seen.log, Trouble) and ended and seen.status_is_current


def _stalled(plan: JobPlan, job: LogJob | None) -> str:
    """Why a job with peers does not advance; empty while it does."""
    if job is None or not job.stalled or plan.phase not in ("Running", "Draining"):
        return ""
    return "; ".join(filter(None, (f"does not advance: {job.stalled}", job.deaths)))


def _record(record: SubmissionRecord, job: LogJob | None, now: str) -> dict[str, Any]:
    if record.job_id is None:
        return {}
    known = job is not None and job.submitted
    ended = known and job is not None and job.ended
    submitted_at = record.submitted_at or (now if known else "")
    finished_at = record.finished_at or (now if ended else "")
    return {
        **identity(record),
        **({"upgradedFrom": identity(record.upgraded_from)} if record.upgraded_from else {}),
        **({"submittedAt": submitted_at} if submitted_at else {}),
        **({"finishedAt": finished_at} if finished_at else {}),
    }


def _savepoint(
    before: Mapping[str, Any], record: SubmissionRecord, job: LogJob | None
) -> dict[str, Any]:
    """Where the job has begun; the log knows it until the job has a state of its own."""
    same = before.get("jobId") == record.job_id and record.job_id is not None
    place = (job.savepoint if job is not None else "") or (before.get("savepoint") if same else "")
    return {"savepoint": place} if place else {}


def _counters(
    before: Mapping[str, Any], record: SubmissionRecord, log: Log | Trouble, job: LogJob | None
) -> dict[str, Any]:
    """Peers, tasks and progress; while the log cannot be reached, and of a job that it has
    forgotten, as they were. Without workers there are no peers."""
    same = before.get("jobId") == record.job_id and record.job_id is not None
    old = {key: before[key] for key in ("logPosition", "progress") if same and key in before}
    if job is None or isinstance(log, Trouble):
        kept = {key: before[key] for key in ("peers", "tasks") if same and key in before}
        if isinstance(log, Trouble) and log.without_workers and "peers" in kept:
            return old | {"peers": {**kept["peers"], "allocated": 0}}
        return old | kept
    if not job.submitted:
        return old
    found = old | {
        "peers": {"allocated": job.peers, "required": job.required},
        "tasks": [{"name": name, "peers": peers} for name, peers in job.tasks[:TASKS_MAX]],
    }
    progress = dict(old.get("progress", {}))
    if job.partitions:
        progress |= {"partitions": job.partitions, "exhausted": job.exhausted}
    if job.completed is not None:
        progress["completed"] = max(job.completed, progress.get("completed", 0))
    return found | ({"progress": progress} if progress else {})


LAG_S = 30.0
"""A lag that was written stays so long, unless the job has caught up or begins to be behind."""


def _lag(
    before: Mapping[str, Any], record: SubmissionRecord, job: LogJob | None, now_s: float
) -> dict[str, Any]:
    """How far behind the job is. It changes all the time, and each write is one to the API server
    and to all who watch; what is not known any more is not said."""
    if job is None or job.lag is None or not job.peers:
        return {}
    old = before.get("lag")
    if isinstance(old, Mapping) and before.get("jobId") == record.job_id:
        known = JobLag(**{name: _whole(old.get(key)) for name, key in _LAG_KEYS.items()})
        written_s = seconds(str(old.get("measuredAt", "")))
        due = written_s is None or not 0 <= now_s - written_s < LAG_S
        if not job.lag.caught_up(known) and not (due and job.lag.is_far_from(known)):
            return {"lag": dict(old)}
    shown = {key: getattr(job.lag, name) for name, key in _LAG_KEYS.items()}
    there = {key: value for key, value in shown.items() if value is not None}
    return {"lag": {**_lag_text(job.lag), **there, "measuredAt": timestamp(now_s)}}


_LAG_KEYS = {
    "segments": "segments",
    "bytes": "bytes",
    "seconds": "seconds",
    "per_s": "segmentsPerSecond",
    "latency_ms": "latencyMilliseconds",
}
"""Fields of `JobLag`, each with its key in a status."""


def _lag_text(lag: JobLag) -> dict[str, str]:
    """For a column of `kubectl get`; nothing while it is not known."""
    if lag.segments is None and lag.bytes is None:
        return {}
    many = f"{lag.bytes:,} B" if lag.segments is None else f"{lag.segments:,}"
    return {"text": f"{many} ({lag.seconds} s)" if lag.seconds else many}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _conditions(
    spec: Spec, record: SubmissionRecord, plan: JobPlan, log: Log | Trouble, job: LogJob | None
) -> dict[str, Verdict]:
    """Every condition by its type, in the order in which they come true.

    One of them has the reason why the job is in its phase; others that are not true point to it.
    """
    found = _grounds(spec, plan, log)
    ends = _ends(plan)
    cause = _first(found, "False") or _first(ends, "True")
    for name, (truth, reason, message) in _steps(record, plan, log, job).items():
        why = message if truth == "True" or not cause else f"see condition {cause}"
        found[name] = truth, reason, why
        cause = cause or (name if truth != "True" else "")
    return found | ends


def _first(verdicts: Mapping[str, Verdict], truth: Truth) -> str:
    return next((name for name, verdict in verdicts.items() if verdict[0] == truth), "")


def _grounds(spec: Spec, plan: JobPlan, log: Log | Trouble) -> dict[str, Verdict]:
    """What every job needs."""
    valid: Verdict = ("True", "Valid", "the spec is a job that this version can run")
    if spec.misread:
        valid = ("True", "WordsMisread", spec.misread)
    if spec.problem:
        lines = filter(None, (spec.problem, spec.misread))
        valid = ("False", spec.problem_reason, "\n".join(lines))
    elif plan.refusal:
        valid = ("False", plan.reason, plan.refusal)
    ready: Verdict = (
        "True",
        "Connected",
        f"the log of cluster {spec.declaration.cluster_ref} is followed",
    )
    if isinstance(log, Log) and log.heir:
        ready = "True", "TakenOver", f"OnyxCluster {log.heir} has taken over the log of its cluster"
    return {
        "Validated": valid,
        "ClusterReady": ("False", log.reason, log.message) if isinstance(log, Trouble) else ready,
    }


def _steps(
    record: SubmissionRecord, plan: JobPlan, log: Log | Trouble, job: LogJob | None
) -> dict[str, Verdict]:
    """How far the job is."""
    if job is None or isinstance(log, Trouble):
        reason = log.reason if isinstance(log, Trouble) else plan.reason
        unknown: Verdict = ("Unknown", reason, "the log of the cluster is not known now")
        steps = dict.fromkeys(("Submitted", *_WITH_PEERS), unknown)
        if isinstance(log, Trouble) and log.without_workers:
            steps |= dict.fromkeys(_WITH_PEERS, ("False", reason, log.message))
        return steps
    submitted = job.submitted or bool(record.submitted_at)
    running = job.peers > 0 and not job.starting
    no: Verdict = ("False", plan.reason, plan.message)
    advancing: Verdict = no
    if running:
        advancing = _advancing(job)
    return {
        "Submitted": ("True", "InLog", f"job {record.job_id} is in the log") if submitted else no,
        "Allocated": ("True", "PeersAllocated", f"{job.peers} peers") if job.peers else no,
        "Running": ("True", "Running", "its peers are ready") if running else no,
        "Advancing": advancing,
    }


def _advancing(job: LogJob) -> Verdict:
    """The status of a job whose peers are ready."""
    if job.stalled:
        return "False", "Stalled", job.stalled
    if job.halted:
        return "False", job.deaths_reason, f"nothing has been completed since; {job.deaths}"
    why = ("no worker reports a task that does not advance", job.deaths)
    return "True", "Advancing", "; ".join(filter(None, why))


def _ends(plan: JobPlan) -> dict[str, Verdict]:
    """The two conditions to wait for; while the job goes on, both are False. A job that is invalid
    has failed: it starts no more until its spec is another one."""
    completed = plan.phase in ("Completed", "Stopped") and plan.reason != "NotSubmitted"
    failed = plan.phase in ("Failed", "Killed", "Invalid")
    ended: Verdict = ("True", plan.reason, plan.message)
    going: Verdict = ("False", "NotEnded", "the job has not ended")
    return {
        "Completed": ended if completed else _not(plan, "Failed") if failed else going,
        "Failed": ended if failed else _not(plan, "Completed") if completed else going,
    }


def _not(plan: JobPlan, but: str) -> Verdict:
    return "False", plan.reason, f"see condition {but}"
