"""Step 2 for an OnyxJob: what to do, from what there is. Pure, total, idempotent.

A plan looks only at the present, never at what has changed: an operator that was killed anywhere,
or ran twice, makes the same plan again. The order within a plan is the safety: an id is recorded
before it is submitted, and an old job has ended before a new one is submitted, so no job is ever in
the log that no object knows of. Its actions are values, which `act` carries out in order; it stops
at the first that fails, and all may be repeated.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from onyx.ids import JobId
from onyx.model.changing import declared
from onyx.replica.commands import (
    DrainJob,
    KillJob,
    PauseJob,
    ResumeJob,
    SetOptions,
    SuspendJob,
)
from onyx.replica.commands.set_options import TaskOptions
from onyx_operator.jobs.observed import JobObservation, ids_of_interest, is_of, is_retried
from onyx_operator.jobs.record import SubmissionRecord
from onyx_operator.jobs.spec import JOB_REF_NOT_FOUND, short
from onyx_operator.kube import seconds
from onyx_operator.logs.state import Log, LogJob, Trouble, UpgradeVerdict

CLUSTER_UNFIT = "ClusterUnfit"
"""Reason of a job that is not submitted to its cluster as that is."""
FILE_WAIT_MIN_S = 1.0
FILE_WAIT_MAX_S = 60.0
"""Between two looks for the file that a `jobRef` names."""
BY_COMMAND = "a command killed it"
SPEC_CHANGED = "SpecChanged"
"""Reason of a job that goes on until the one of the new spec takes its place."""
SAVEPOINT_REFUSED = "SavepointRefused"
_FROM_BEGINNING = UpgradeVerdict()
"""A job that starts from the beginning upgrades nothing."""


class Remember(msgspec.Struct, frozen=True):
    """Write a record into the status, before what it announces is done."""

    record: SubmissionRecord


class Submit(msgspec.Struct, frozen=True):
    """Submit the job under this id."""

    job: JobId
    upgrades: JobId | None = None
    """The old job, which the submission kills."""
    remarks: str = ""
    """What is not carried over from it, for the event."""


class ControlJob(msgspec.Struct, frozen=True):
    """Append a command about a job to the log."""

    command: KillJob | SuspendJob | PauseJob | ResumeJob | DrainJob | SetOptions


class DeleteObject(msgspec.Struct, frozen=True):
    """Delete the object, whose job ended long enough ago."""

    phase: str
    message: str
    """Phase and message of the job's end, for the event."""


Action = Remember | Submit | ControlJob | DeleteObject


class JobPlan(msgspec.Struct, frozen=True):
    """What to do now, and what to say of the job when that is done."""

    actions: tuple[Action, ...]
    phase: str
    reason: str
    message: str
    again_in_s: float | None = None
    """Look again after so long, whatever happens."""
    refusal: str = ""
    """Why the spec is not taken though it is valid by itself, a line each."""
    keeps_pause: bool = False
    """Whether a job that was paused for an upgrade stays so, because that goes on."""
    error: Exception | None = None
    """Never set: a job that was refused is reported, and planned again after `again_in_s`."""


def plan(seen: JobObservation) -> JobPlan:
    """What to do about one OnyxJob."""
    if isinstance(seen.log, Trouble):
        return _without_log(seen, seen.log)
    if seen.spec.deleted_at:
        return _delete(seen, seen.log)
    if seen.spec.job is None:
        found = _invalid(seen)
        return replace(found, actions=_unpaused(seen, found))
    found = _valid(seen, seen.log)
    submits = any(isinstance(each, Submit | Remember) for each in found.actions)
    if seen.log.heir and (submits or not is_of(seen.spec, seen.record)):
        found = _guest(seen, seen.log)
    # Names are used once at a time: who had this one before is gone, and its job goes first.
    ends = (*seen.log.orphans, *_come_back(seen, seen.log, found.actions))
    kills = (ControlJob(KillJob(job=each)) for each in ends)
    return replace(found, actions=(*kills, *found.actions, *_unpaused(seen, found)))


def _unpaused(seen: JobObservation, found: JobPlan) -> tuple[Action, ...]:
    """A job that was paused for an upgrade goes on, if that was taken back or refused."""
    job, now = seen.current_job, seen.versions.current
    if not job.paused or job.suspended or seen.spec.declaration.desired_state != "Running":
        return ()
    if now is None or now.job_id is None or found.keeps_pause:
        return ()
    return (ControlJob(ResumeJob(job=now.job_id)),)


def _guest(seen: JobObservation, log: Log) -> JobPlan:
    """A job in the log of a cluster that its object does not name is looked after to its end. No
    other is submitted there, and an edit does not end it."""
    phase = _words_of_live(seen.current_job)[0] if seen.current_job.stage == "live" else ""
    message = (
        f"nothing new is submitted: the cluster that it names is gone, and OnyxCluster {log.heir} "
        "has taken over its log; make a job for that one"
    )
    return JobPlan((), phase or _phase(seen.record), "ClusterNotFound", message)


def _come_back(seen: JobObservation, log: Log, actions: tuple[Action, ...]) -> tuple[JobId, ...]:
    """An old job that runs although the one that upgraded it was in the log: the log was restored
    from a backup. The old job is killed before another one is submitted."""
    old = seen.record.upgraded_from
    if old is None or old.job_id is None or seen.versions.current is old:
        return ()
    submits = any(isinstance(each, Submit) for each in actions)
    return (old.job_id,) if submits and log.job(old.job_id).stage == "live" else ()


def _delete(seen: JobObservation, log: Log) -> JobPlan:
    """Kill the job of an object that is deleted and that a finalizer still holds. Once the object
    is gone, `departures` does it."""
    candidates = dict.fromkeys((*ids_of_interest(seen.spec, seen.record), *log.jobs))
    # An id that is only intended is killed too: a submission under way then comes too late.
    intended = seen.record.job_id if not seen.record.submitted_at else None
    to_kill = [each for each in candidates if log.job(each).stage == "live" or each == intended]
    kills = tuple(ControlJob(KillJob(job=each)) for each in to_kill if not log.job(each).ended)
    phase = _phase(seen.record) if seen.record.finished and not kills else "Killed"
    return JobPlan(kills, phase, "Deleted", "the object is being deleted")


def _without_log(seen: JobObservation, trouble: Trouble) -> JobPlan:
    """Nothing is done; the status keeps what was known of the job."""
    spec, record = seen.spec, seen.record
    if spec.job is None and record.job_id is None:
        return _unusable(seen)
    if record.finished and is_of(spec, record):
        return _ended(seen, _phase(record), "Finished", "the job has ended")
    phase = _phase(record)
    if trouble.without_workers and phase in ("Submitted", "Running"):
        phase = "Waiting"
    return JobPlan((), phase, trouble.reason, trouble.message)


def _invalid(seen: JobObservation) -> JobPlan:
    """An invalid spec starts nothing and stops nothing: a job that runs goes on as it was."""
    spec, job = seen.spec, seen.current_job
    if job.stage != "live" and _file_went_after_end(seen):
        message = "the job has ended; its file is not there any more"
        return _ended(seen, seen.record.phase, "Finished", message)
    if job.stage != "live":
        return _unusable(seen)
    phase, _, _ = _words_of_live(job)
    message = f"the job of the previous spec goes on; the new spec is wrong: {short(spec.problem)}"
    return JobPlan((), phase, spec.problem_reason, message, _until_file(seen))


def _file_went_after_end(seen: JobObservation) -> bool:
    """Whether the file of a job went after the job had ended: nothing asks for another one."""
    gone = seen.spec.problem_reason == JOB_REF_NOT_FOUND and seen.status_is_current
    return gone and seen.record.phase in ("Completed", "Stopped", "Failed", "Killed")


def _unusable(seen: JobObservation) -> JobPlan:
    """There is no job, and there was none. A file that is not there yet may well come."""
    spec = seen.spec
    phase = "Pending" if spec.problem_reason == JOB_REF_NOT_FOUND else "Invalid"
    return JobPlan((), phase, spec.problem_reason, short(spec.problem), _until_file(seen))


def _until_file(seen: JobObservation) -> float | None:
    """When a file that is missing is looked for again, because no watch shows that it is there:
    after as long as it has been missing already, so that waits double."""
    if seen.spec.problem_reason != JOB_REF_NOT_FOUND:
        return None
    return min(max(seen.invalid_s, FILE_WAIT_MIN_S), FILE_WAIT_MAX_S)


def _valid(seen: JobObservation, log: Log) -> JobPlan:
    """A spec that is a job, of an object that stays: the first case that fits."""
    spec, record, found = seen.spec, seen.record, seen.versions
    now, job = found.current, seen.current_job
    if is_of(spec, record) and now is record:
        return _same(seen, log)
    if now is not None and is_of(spec, now) and not is_of(spec, record) and job.stage == "live":
        # An edit was taken back before its job was in the log: the record names the old job again.
        return JobPlan((*_fence(seen, log), Remember(now)), *_words_of_live(job))
    if seen.unfit and spec.declaration.desired_state == "Running":
        return _unfit(seen, log)
    if found.upgrades is not None:
        return _upgrade(seen, log, found.upgrades)
    if now is not None and now.job_id is not None and job.stage == "live":
        return _replace(seen, now.job_id, job)
    # No job yet, or one that has ended and whose state nobody goes on with.
    begun = _begin(seen, log, found.wanted)
    return replace(begun, actions=(*_fence(seen, log), *begun.actions))


def _unfit(seen: JobObservation, log: Log) -> JobPlan:
    """A job that its cluster could not run is not submitted, and an edit to one stops nothing. It
    waits, because the cluster may be changed; that touches its jobs."""
    job, why = seen.current_job, short(seen.unfit)
    if job.stage != "live":
        return JobPlan(_fence(seen, log), "Pending", CLUSTER_UNFIT, why, refusal=seen.unfit)
    phase, _, _ = _words_of_live(job)
    message = f"the job of the previous spec goes on; the cluster cannot run the new one: {why}"
    return JobPlan((), phase, CLUSTER_UNFIT, message, refusal=seen.unfit)


def _fence(seen: JobObservation, log: Log) -> tuple[Action, ...]:
    """The end of a job that was intended and is not any more: its submission, which may be under
    way, then comes too late, because the log accepts no submission of a killed job."""
    abandoned = seen.versions.abandoned
    if abandoned is None or log.job(abandoned).ended:
        return ()
    return (ControlJob(KillJob(job=abandoned)),)


def _begin(
    seen: JobObservation,
    log: Log,
    record: SubmissionRecord,
    verdict: UpgradeVerdict = _FROM_BEGINNING,
) -> JobPlan:
    """Submit a job, if it is to run now.

    Args:
        record: what is recorded of it before.
        verdict: of the upgrade that it makes, if any.
    """
    desired, unknown = (
        seen.spec.declaration.desired_state,
        log.job(record.job_id).stage == "unknown",
    )
    if unknown and desired != "Running":
        message = "nothing is submitted until desiredState is Running"
        phase = "Stopped" if desired == "Stopped" else "Suspended"
        return JobPlan((), phase, "NotSubmitted", message)
    assert record.job_id is not None
    asked = seen.upgrade
    if unknown and seen.versions.upgrades is None and asked and (asked.refusal or asked.waits):
        why = short(asked.refusal) or asked.waits
        reason = SAVEPOINT_REFUSED if asked.refusal else "Submitting"
        return JobPlan((), "Pending", reason, why, asked.again_in_s, asked.refusal)
    actions: list[Action] = []
    if seen.record != replace(record, phase=seen.record.phase):  # which is of the last plan
        actions.append(Remember(record))
    if unknown:
        actions.append(Submit(record.job_id, verdict.upgrades, verdict.remarks))
    message = f"job {record.job_id} is in the log"
    return JobPlan(tuple(actions), "Submitted", "Submitted", message, keeps_pause=True)


def _upgrade(seen: JobObservation, log: Log, old: SubmissionRecord) -> JobPlan:
    """Submit a job that upgrades the old one: the same log entry kills that."""
    verdict, job = seen.upgrade, log.job(old.job_id)
    assert verdict is not None
    assert old.job_id is not None
    if verdict.refusal:
        return _refused(seen.record, job, verdict)
    if verdict.waits or verdict.pauses:
        phase, _, why = _words_of_live(job)
        pause = () if verdict.waits or job.paused else (ControlJob(PauseJob(job=old.job_id)),)
        message = verdict.waits or why
        return JobPlan(pause, phase, SPEC_CHANGED, message, verdict.again_in_s, keeps_pause=True)
    named = replace(old, submitted_at="", finished_at="", phase="", upgraded_from=None)
    begun = _begin(seen, log, replace(seen.versions.wanted, upgraded_from=named), verdict)
    actions = begun.actions
    if job.stage == "live" and verdict.upgrades != old.job_id:
        # It has no state of its own yet. Once it has ended, the holder of the state is final, and
        # the next plan submits.
        unsent = (each for each in actions if not isinstance(each, Submit))
        actions = (*unsent, ControlJob(KillJob(job=old.job_id)))
    return replace(begun, actions=(*_fence(seen, log), *actions))


def _refused(record: SubmissionRecord, job: LogJob, verdict: UpgradeVerdict) -> JobPlan:
    """An edit that would lose state, or cannot run, starts nothing and stops nothing either."""
    phase, now = _phase(record), "the job of the previous spec has ended"
    if job.stage == "live":
        phase, _, _ = _words_of_live(job)
        now = "the job of the previous spec goes on"
    elif job.stage == "killed":
        phase, now = ("Failed", job.failure) if job.failure else ("Killed", now)
    message = f"{now}; the new one cannot upgrade it: {short(verdict.refusal)}"
    reason, refusal = "UpgradeRefused", verdict.refusal
    return JobPlan((), phase, reason, message, verdict.again_in_s, refusal)


def _replace(seen: JobObservation, old: JobId, job: LogJob) -> JobPlan:
    """The spec was edited: the old job completes what it has begun."""
    desired = seen.spec.declaration.desired_state
    if desired == "Suspended":
        actions = () if job.suspended else (ControlJob(SuspendJob(job=old)),)
        message = f"job {old} is suspended; the new spec is taken when desiredState is Running"
        return JobPlan(actions, "Suspended", SPEC_CHANGED, message)
    message = f"job {old} of the previous spec completes what it has begun, then the new one starts"
    if desired == "Stopped":
        message = f"job {old} completes what it has begun; nothing is submitted after it"
    message = _and_why(message, job)
    return JobPlan(_drained(old, job), "Draining", SPEC_CHANGED, message, keeps_pause=True)


def _drained(job_id: JobId, job: LogJob) -> tuple[Action, ...]:
    """Drain, and only then resume, so that it reads nothing new in between."""
    drain = () if job.draining else (ControlJob(DrainJob(job=job_id)),)
    resume = (ControlJob(ResumeJob(job=job_id)),) if job.suspended else ()
    return (*drain, *resume)


def _same(seen: JobObservation, log: Log) -> JobPlan:
    """The job in the log, or recorded, is the one that is wanted."""
    record = seen.record
    job = log.job(record.job_id)
    if job.stage == "live":
        return _keep(seen, job)
    if job.collected and record.finished:
        return _ended(seen, _phase(record), "Finished", "the job has ended")
    if job.stage == "completed":
        stopped = seen.spec.declaration.desired_state == "Stopped" or record.phase == "Stopped"
        reason = "Drained" if stopped else "Completed"
        message = "all inputs were processed to their end"
        if stopped:
            message = "the job was drained; another restartNonce runs it again from its beginning"
        return _ended(seen, "Stopped" if stopped else "Completed", reason, message)
    if job.stage == "killed":
        return _killed(seen, log, job)
    if record.finished:
        return _ended(seen, _phase(record), "Finished", "the job has ended")
    message = (
        f"the log does not know job {record.job_id} any more: it was collected after its end, or "
        "ZooKeeper has lost its data; restore a backup (`onyx restore`), or run it again from its "
        "beginning by another restartNonce"
    )
    return JobPlan((), "Unknown", "Forgotten", message)


def _keep(seen: JobObservation, job: LogJob) -> JobPlan:
    """Bring a job that runs into its desired state."""
    desired, job_id = seen.spec.declaration.desired_state, seen.spec.job_id(seen.record.attempt)
    actions: tuple[Action, ...] = ()
    if desired == "Suspended" and not job.suspended:
        actions = (ControlJob(SuspendJob(job=job_id)),)
    elif desired == "Running" and job.suspended:
        actions = (ControlJob(ResumeJob(job=job_id)),)
    elif desired == "Stopped":
        actions = _drained(job_id, job)
    actions += _options_set(seen, job_id, job)
    phase, reason, message = _words_of_live(job)
    if desired == "Running" and job.draining:
        message = _and_why("it was stopped and drains; another restartNonce runs it again", job)
    return JobPlan(actions, phase, reason, message)


def _options_set(seen: JobObservation, job_id: JobId, job: LogJob) -> tuple[Action, ...]:
    """An edit of nothing but keys that may change while the job runs changes them there. Who set
    some of them by hand since the last edit is not undone before the next one."""
    spec = seen.spec
    if spec.job is None or spec.options == job.options:
        return ()
    given = declared(spec.job).items()
    tasks = {task: TaskOptions.of(values) for task, values in given}
    return (ControlJob(SetOptions(job=job_id, tasks=tasks, declares=spec.options)),)


def _words_of_live(job: LogJob) -> tuple[str, str, str]:
    """Phase, reason and message of a job that has not ended."""
    if job.suspended:
        return "Suspended", "Suspended", "the job has given its peers to others and keeps its work"
    if job.draining:
        message = _and_why("it reads nothing new and completes what is pending", job)
        return "Draining", "Draining", message
    if not job.peers:
        reason = "Displaced" if job.displaced else "WaitingForPeers"
        return "Waiting", reason, _and_why("", job)
    if job.paused:
        return "Running", "Paused", _and_why(job.paused, job)
    reason, message = "Running", f"{job.peers} peers work on it"
    if job.starting:
        reason, message = "Starting", "its peers are getting ready"
    return "Running", job.deaths_reason or reason, _and_why(message, job)


def _and_why(message: str, job: LogJob) -> str:
    return "; ".join(filter(None, (message, job.waiting_for, job.deaths)))


def _killed(seen: JobObservation, log: Log, job: LogJob) -> JobPlan:
    spec, record, policy = seen.spec, seen.record, seen.spec.declaration.failure_policy
    if not job.failure:
        who = "it was killed so long ago that nobody knows why" if job.collected else BY_COMMAND
        message = f"{who}; another restartNonce runs it again from its beginning"
        return _ended(seen, "Killed", "Killed", message)
    if not is_retried(spec, record, job):
        tries = f" (after {record.retried} retries)" if record.retried else ""
        return _ended(seen, "Failed", "TaskFailed", f"{job.failure}{tries}")
    finished_s = seconds(record.finished_at)
    ended_s = seen.now_s if finished_s is None else finished_s
    left_s = ended_s + policy.backoff_seconds - seen.now_s
    message = f"attempt {record.retried + 1} of {policy.retries + 1} failed: {job.failure}"
    if left_s > 0 or spec.declaration.desired_state != "Running":
        return JobPlan((), "Pending", "BackOff", message, left_s if left_s > 0 else None)
    return _retry(seen, log, message)


def _retry(seen: JobObservation, log: Log, message: str) -> JobPlan:
    """Submit a job that has failed once more."""
    found = seen.versions
    if found.upgrades is None:
        again = _begin(seen, log, found.wanted)
    else:
        again = _upgrade(seen, log, found.upgrades)
    return replace(again, reason="Retrying", message=message) if again.actions else again


def _ended(seen: JobObservation, phase: str, reason: str, message: str) -> JobPlan:
    """The job has ended for good, and its object is deleted after `ttlSecondsAfterFinished`."""
    ttl_s = seen.spec.declaration.ttl_seconds_after_finished
    if ttl_s is None:
        return JobPlan((), phase, reason, message)
    finished_s = seconds(seen.record.finished_at)
    left_s = ttl_s if finished_s is None else finished_s + ttl_s - seen.now_s
    if left_s > 0 or finished_s is None:
        return JobPlan((), phase, reason, message, max(left_s, 1.0))
    return JobPlan((DeleteObject(phase, message),), phase, "Expired", message)


def _phase(record: SubmissionRecord) -> str:
    return record.phase or "Pending"
