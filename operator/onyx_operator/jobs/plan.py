"""From what an OnyxJob asks for and what there is, to what is to be done: pure, total, idempotent.

A plan looks only at the present, never at what has changed: an operator that was killed anywhere,
or ran twice, makes the same plan again. The order within a plan is the safety: an id is written
down before it is submitted, and a job is in its end before the next one is submitted, so nothing is
ever in the log that no object knows of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from onyx.ids import JobId
from onyx.replica.commands.drain_job import DrainJob
from onyx.replica.commands.kill_job import KillJob
from onyx.replica.commands.resume_job import ResumeJob
from onyx.replica.commands.suspend_job import SuspendJob
from onyx_operator.jobs.actions import (
    Action,
    DeleteObject,
    Remember,
    Submit,
    Tell,
)
from onyx_operator.jobs.observed import Seen
from onyx_operator.jobs.record import Record
from onyx_operator.jobs.spec import JOB_REF_NOT_FOUND, Spec, short
from onyx_operator.jobs.versions import (
    current,
    ids_of_interest,
    is_of,
    is_retried,
    next_attempt,
    only_meant,
    to_upgrade,
    wanted_next,
)
from onyx_operator.logs.state import UNKNOWN, Log, LogJob, Trouble, Upgrade

FILE_WAIT_MIN_S = 1.0
FILE_WAIT_MAX_S = 60.0
"""Between two looks for the file that a `jobRef` names."""
_ANEW = Upgrade()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and what to say of the job when that is done."""

    actions: tuple[Action, ...]
    phase: str
    reason: str
    message: str
    again_in_s: float | None = None
    """Look again after so long, whatever happens."""
    refusal: str = ""
    """Why the spec is not taken though it is right by itself, a line each."""


def plan(spec: Spec, seen: Seen) -> Plan:
    """What to do about one OnyxJob.

    Args:
        spec: what is wanted.
        seen: what there is; `seen.log.jobs` has the jobs of `ids_of_interest`.
    """
    if isinstance(seen.log, Trouble):
        return _without_log(spec, seen, seen.log)
    if spec.deleted_at:
        return _delete(spec, seen, seen.log)
    if spec.job is None:
        return _invalid(spec, seen, seen.log)
    found = _live(spec, seen, seen.log)
    # Names are used once at a time: who had this one before is gone, and its job goes first.
    ends = (*seen.log.orphans, *_come_back(seen.record, seen.log, found.actions))
    return replace(found, actions=(*(Tell(KillJob(job=each)) for each in ends), *found.actions))


def _come_back(record: Record, log: Log, actions: tuple[Action, ...]) -> tuple[JobId, ...]:
    """An old job that runs although the one that upgraded it was in the log: the log was restored
    from a backup. The old job is killed before another one is submitted."""
    old = record.upgraded_from
    if old is None or old.job_id is None or current(record, log) is old:
        return ()
    submits = any(isinstance(each, Submit) for each in actions)
    return (old.job_id,) if submits and log.job(old.job_id).stage == "live" else ()


def seconds(timestamp: str) -> float | None:
    """Seconds since the epoch of a time as the API writes it; None when it is none."""
    try:
        return datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _delete(spec: Spec, seen: Seen, log: Log) -> Plan:
    """Kill the job of an object that is deleted and that somebody else still holds. When it is gone
    the rest is done by `departures`."""
    candidates = dict.fromkeys((*ids_of_interest(spec, seen.record), *log.jobs))
    # An id that is only intended is killed too: a submission under way then comes too late.
    intended = seen.record.job_id if not seen.record.submitted_at else None
    to_kill = [each for each in candidates if log.job(each).stage == "live" or each == intended]
    kills = tuple(Tell(KillJob(job=each)) for each in to_kill if not log.job(each).ended)
    phase = _phase(seen.record) if seen.record.finished and not kills else "Killed"
    return Plan(kills, phase, "Deleted", "the object is being deleted")


def _without_log(spec: Spec, seen: Seen, trouble: Trouble) -> Plan:
    """Nothing is done; what was known of the job is still said."""
    record = seen.record
    if spec.job is None and record.job_id is None:
        return _unusable(spec, seen)
    if record.finished and is_of(spec, record):
        return _ended(spec, seen, _phase(record), "Finished", "the job has ended")
    phase = _phase(record)
    if trouble.without_workers and phase in ("Submitted", "Running"):
        phase = "Waiting"
    return Plan((), phase, trouble.reason, trouble.message)


def _invalid(spec: Spec, seen: Seen, log: Log) -> Plan:
    """A bad spec starts nothing and stops nothing: a job that runs goes on as it was."""
    now = current(seen.record, log)
    job = log.job(now.job_id) if now is not None else UNKNOWN
    if job.stage != "live" and _has_ended_before(spec, seen):
        message = "the job has ended; its file is not there any more"
        return _ended(spec, seen, seen.record.phase, "Finished", message)
    if job.stage != "live":
        return _unusable(spec, seen)
    phase, _, _ = _going_on(job)
    message = f"the job of the previous spec goes on; the new spec is wrong: {short(spec.problem)}"
    return Plan((), phase, spec.problem_reason, message, _until_file(spec, seen))


def _has_ended_before(spec: Spec, seen: Seen) -> bool:
    """Whether the file of a job went after the job had ended: nothing asks for another one."""
    gone = spec.problem_reason == JOB_REF_NOT_FOUND and seen.told
    return gone and seen.record.phase in ("Completed", "Stopped", "Failed", "Killed")


def _unusable(spec: Spec, seen: Seen) -> Plan:
    """There is no job, and there was none. A file that is not there yet may well come."""
    phase = "Pending" if spec.problem_reason == JOB_REF_NOT_FOUND else "Invalid"
    again_in_s = _until_file(spec, seen)
    return Plan((), phase, spec.problem_reason, short(spec.problem), again_in_s)


def _until_file(spec: Spec, seen: Seen) -> float | None:
    """When a file that is missing is looked for again, because nobody tells that it is there: after
    as long as it has been missed already, so that waits double."""
    if spec.problem_reason != JOB_REF_NOT_FOUND:
        return None
    return min(max(seen.invalid_s, FILE_WAIT_MIN_S), FILE_WAIT_MAX_S)


def _live(spec: Spec, seen: Seen, log: Log) -> Plan:
    record, now = seen.record, current(seen.record, log)
    if is_of(spec, record) and now is record:
        return _same(spec, seen, log)
    job = log.job(now.job_id) if now is not None else UNKNOWN
    if now is not None and is_of(spec, now) and not is_of(spec, record) and job.stage == "live":
        actions = (*_fence(spec, record, log), Remember(now))
        return Plan(actions, *_going_on(job))
    new = wanted_next(spec, record, log)
    old = to_upgrade(spec, record, log)
    if old is not None:
        return _upgrade(spec, seen, log, old, new)
    if now is not None and now.job_id is not None and job.stage == "live":
        return _replace(spec, now.job_id, job)
    begun = _begin(spec, seen, log.job(new.job_id), new)
    return replace(begun, actions=(*_fence(spec, record, log), *begun.actions))


def _fence(spec: Spec, record: Record, log: Log) -> tuple[Action, ...]:
    """The end of a job that was only meant, and is not any more: its submission, which may be under
    way, then comes too late."""
    given_up = only_meant(record, log) and not is_of(spec, record)
    if record.job_id is None or not given_up or log.job(record.job_id).ended:
        return ()
    return (Tell(KillJob(job=record.job_id)),)


def _begin(spec: Spec, seen: Seen, job: LogJob, record: Record, by: Upgrade = _ANEW) -> Plan:
    """Submit a job, if it shall run now.

    Args:
        job: what the log knows of it.
        record: what is written down of it before.
        by: the upgrade that it makes, if any.
    """
    if job.stage == "unknown" and spec.declaration.desired_state != "Running":
        message = "nothing is submitted until desiredState is Running"
        phase = "Stopped" if spec.declaration.desired_state == "Stopped" else "Suspended"
        return Plan((), phase, "NotSubmitted", message)
    assert record.job_id is not None
    actions: list[Action] = []
    if seen.record != replace(record, phase=seen.record.phase):
        actions.append(Remember(record))
    if job.stage == "unknown":
        actions.append(Submit(record.job_id, by.upgrades, by.remarks))
    return Plan(tuple(actions), "Submitted", "Submitted", f"job {record.job_id} is in the log")


def _upgrade(spec: Spec, seen: Seen, log: Log, old: Record, new: Record) -> Plan:
    """Submit a job that upgrades the old one: the same log entry kills that."""
    by, job = seen.upgrade, log.job(old.job_id)
    assert by is not None
    assert old.job_id is not None
    if by.refusal:
        return _refused(seen.record, job, by)
    if by.waits:
        phase, _, _ = _going_on(job)
        return Plan((), phase, "SpecChanged", by.waits, by.again_in_s)
    named = replace(old, submitted_at="", finished_at="", phase="", upgraded_from=None)
    begun = _begin(spec, seen, log.job(new.job_id), replace(new, upgraded_from=named), by)
    actions = begun.actions
    if job.stage == "live" and by.upgrades != old.job_id:
        # It has no state of its own yet. Once it has ended, the holder of the state is final.
        unsent = (each for each in actions if not isinstance(each, Submit))
        actions = (*unsent, Tell(KillJob(job=old.job_id)))
    return replace(begun, actions=(*_fence(spec, seen.record, log), *actions))


def _refused(record: Record, job: LogJob, by: Upgrade) -> Plan:
    """An edit that would lose state, or cannot run, starts nothing and stops nothing either."""
    phase, now = _phase(record), "the job of the previous spec has ended"
    if job.stage == "live":
        phase, _, _ = _going_on(job)
        now = "the job of the previous spec goes on"
    elif job.stage == "killed":
        phase, now = ("Failed", job.failure) if job.failure else ("Killed", now)
    message = f"{now}; the new one cannot upgrade it: {short(by.refusal)}"
    return Plan((), phase, "UpgradeRefused", message, by.again_in_s, by.refusal)


def _replace(spec: Spec, old: JobId, job: LogJob) -> Plan:
    """The spec was edited: the old job completes what it has begun."""
    if spec.declaration.desired_state == "Suspended":
        actions = () if job.suspended else (Tell(SuspendJob(job=old)),)
        message = f"job {old} is suspended; the new spec is taken when desiredState is Running"
        return Plan(actions, "Suspended", "SpecChanged", message)
    message = f"job {old} of the previous spec completes what it has begun, then the new one starts"
    if spec.declaration.desired_state == "Stopped":
        message = f"job {old} completes what it has begun; nothing is submitted after it"
    return Plan(_drained(old, job), "Draining", "SpecChanged", _and_why(message, job))


def _drained(job_id: JobId, job: LogJob) -> tuple[Action, ...]:
    """Drain, and only then resume, so that it reads nothing new in between."""
    drain = () if job.draining else (Tell(DrainJob(job=job_id)),)
    resume = (Tell(ResumeJob(job=job_id)),) if job.suspended else ()
    return (*drain, *resume)


def _same(spec: Spec, seen: Seen, log: Log) -> Plan:
    """The job in the log, or recorded, is the one that is wanted."""
    record = seen.record
    job = log.job(record.job_id)
    if job.stage == "live":
        return _keep(spec, seen, job)
    if job.stage == "completed":
        stopped = spec.declaration.desired_state == "Stopped" or record.phase == "Stopped"
        reason = "Drained" if stopped else "Completed"
        message = "all inputs were processed to their end"
        if stopped:
            message = "the job was drained; another restartNonce runs it again from its beginning"
        return _ended(spec, seen, "Stopped" if stopped else "Completed", reason, message)
    if job.stage == "killed":
        return _killed(spec, seen, log, job)
    if record.finished:
        return _ended(spec, seen, _phase(record), "Finished", "the job has ended")
    message = (
        f"the log does not know job {record.job_id} any more: it was collected after its end, or "
        "ZooKeeper has lost its data; another restartNonce runs the job again from its beginning"
    )
    return Plan((), "Unknown", "Forgotten", message)


def _keep(spec: Spec, seen: Seen, job: LogJob) -> Plan:
    """Make a job that runs do what is wanted."""
    desired, job_id = spec.declaration.desired_state, spec.job_id(seen.record.attempt)
    actions: tuple[Action, ...] = ()
    if desired == "Suspended" and not job.suspended:
        actions = (Tell(SuspendJob(job=job_id)),)
    elif desired == "Running" and job.suspended:
        actions = (Tell(ResumeJob(job=job_id)),)
    elif desired == "Stopped":
        actions = _drained(job_id, job)
    phase, reason, message = _going_on(job)
    if desired == "Running" and job.draining:
        message = _and_why("it was stopped and drains; another restartNonce runs it again", job)
    return Plan(actions, phase, reason, message)


def _going_on(job: LogJob) -> tuple[str, str, str]:
    """Phase, reason and message of a job that has not ended."""
    if job.suspended:
        return "Suspended", "Suspended", "the job has given its peers to others and keeps its work"
    if job.draining:
        message = _and_why("it reads nothing new and completes what is pending", job)
        return "Draining", "Draining", message
    if not job.peers:
        reason = "Displaced" if job.displaced else "WaitingForPeers"
        return "Waiting", reason, job.waiting_for
    if job.starting:
        return "Running", "Starting", "its peers are getting ready"
    return "Running", "Running", f"{job.peers} peers work on it"


def _and_why(message: str, job: LogJob) -> str:
    return f"{message}; {job.waiting_for}" if job.waiting_for else message


def _killed(spec: Spec, seen: Seen, log: Log, job: LogJob) -> Plan:
    record, policy = seen.record, spec.declaration.failure_policy
    if not job.failure:
        message = "a command killed it; another restartNonce runs it again from its beginning"
        return _ended(spec, seen, "Killed", "Killed", message)
    if not is_retried(spec, record, job):
        tries = f" (after {record.retried} retries)" if record.retried else ""
        return _ended(spec, seen, "Failed", "TaskFailed", f"{job.failure}{tries}")
    finished_s = seconds(record.finished_at)
    ended_s = seen.now_s if finished_s is None else finished_s
    left_s = ended_s + policy.backoff_seconds - seen.now_s
    message = f"attempt {record.retried + 1} of {policy.retries + 1} failed: {job.failure}"
    if left_s > 0 or spec.declaration.desired_state != "Running":
        return Plan((), "Pending", "BackOff", message, left_s if left_s > 0 else None)
    return _again(spec, seen, log, message)


def _again(spec: Spec, seen: Seen, log: Log, message: str) -> Plan:
    """Submit a job that has failed once more."""
    record, new = seen.record, next_attempt(spec, seen.record)
    if to_upgrade(spec, record, log) is None:
        again = _begin(spec, seen, log.job(new.job_id), new)
    else:
        again = _upgrade(spec, seen, log, record, new)
    return replace(again, reason="Retrying", message=message) if again.actions else again


def _ended(spec: Spec, seen: Seen, phase: str, reason: str, message: str) -> Plan:
    """The job has ended for good, and in time its object is deleted, if it shall be."""
    ttl_s = spec.declaration.ttl_seconds_after_finished
    if ttl_s is None:
        return Plan((), phase, reason, message)
    finished_s = seconds(seen.record.finished_at)
    left_s = ttl_s if finished_s is None else finished_s + ttl_s - seen.now_s
    if left_s > 0 or finished_s is None:
        return Plan((), phase, reason, message, max(left_s, 1.0))
    return Plan((DeleteObject(),), phase, "Expired", message)


def _phase(record: Record) -> str:
    return record.phase or "Pending"
