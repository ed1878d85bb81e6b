"""What an entry of the log means for jobs and workers: the events between two replicas.

Level-based, as effects are (`replica/reconcile`): what has happened to a job is the difference of
its records, and the entry says only why and by whom. So whatever changes a job is reported, through
whichever command, and what an entry asked for in vain is not.

One thing is asked beside the difference: why a job without peers waits, since that may change with
others. It is reported when the words change, not with each number in them; of the first jobs only,
because an answer looks at the whole cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from onyx.ids import GroupId, JobId
from onyx.replica import machine
from onyx.replica.authors import UNKNOWN, WORKER, author
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AcceptJoinCluster,
    AddVirtualPeer,
    DrainJob,
    ExhaustInput,
    GroupLeaveCluster,
    KillJob,
    LeaveCluster,
    LoadJob,
    PauseJob,
    RegisterPartitions,
    ReportLoss,
    RestartTask,
    ResumeJob,
    SealOutput,
    SetOptions,
    SignalReady,
    SubmitJob,
    SuspendJob,
)
from onyx.replica.commands.load_job import loaded_for
from onyx.replica.job_events import (
    ALLOCATED,
    COMPLETED,
    DRAINS,
    FAILED,
    FORGOTTEN,
    KILLED,
    NO_CHANGE,
    OPTIONS_SET,
    PARTITIONS,
    PAUSED,
    PROCESS_LOST,
    REALLOCATED,
    REPLACED,
    REPLACES,
    RESTARTED,
    RESTED,
    RESUMED,
    RUNS,
    SAVEPOINT,
    SEALED,
    SOURCE_ENDED,
    SUBMITTED,
    SUSPENDED,
    WAITS,
    WORKER_JOINED,
    WORKER_LEFT,
    WORKER_LOST,
    WORKER_READY,
    EventKind,
    JobEvent,
    some,
)
from onyx.replica.jobs import restless, upgraded_by
from onyx.replica.scheduling.explain import why_waiting
from onyx.replica.state import NOTHING, JobRun, Replica

WAITING_FOLLOWED_MAX = 8
_NUMBERS = re.compile(r"\d+")
_NO_JOB = JobId("")

Found = tuple[EventKind, JobId, dict[str, Any]]


def events_of(
    old: Replica, entry: Entry, new: Replica, of: Callable[[JobId], bool] = lambda _: True
) -> tuple[JobEvent, ...]:
    """What has happened with an entry, in order.

    Args:
        old: the replica before it.
        new: the replica after it.
        of: the jobs that are meant; an empty id stands for what happens to workers.
    """
    if machine.is_void(old, entry):
        return ()
    by = proposer(entry)
    found = list(_of_workers(old, entry, new)) if of(_NO_JOB) else []
    for job in _changed(old, new):
        if of(job):
            found += ((kind, job, values) for kind, values in _of_job(old, entry, new, job))
    found += _loaded(entry.command, old, new, of)
    found += _waiting_for_more(old, new, of)
    job = _asked(entry.command)
    if job and of(job) and not found:
        found.append((NO_CHANGE, job, {"command": entry.command.NAME}))
    return tuple(
        JobEvent(
            kind, values, job, by, entry.at_ms, entry.position, new.said_of(job) or old.said_of(job)
        )
        for kind, job, values in found
    )


def proposer(entry: Entry) -> str:
    """Who wrote an entry: a person or program, or the worker."""
    return entry.by or (author(WORKER, entry.writer) if entry.writer else UNKNOWN)


def _changed(old: Replica, new: Replica) -> list[JobId]:
    """The jobs of which something is different; those of the old replica first, since they make
    room for others. What is forgotten is in neither list of running jobs."""
    if new.records is old.records and new.killed_jobs is old.killed_jobs:
        return []
    running = new.jobs if new.jobs is old.jobs else dict.fromkeys((*old.jobs, *new.jobs))
    found = [job for job in running if old.records.get(job) is not new.records.get(job)]
    if len(new.records) < len(old.records):
        found += sorted(job for job in old.records if job not in new.records)
    # An id that is killed before anybody submits it has no record.
    strangers = (job for job in new.killed_jobs[-1:] if job not in new.records)
    found += [job for job in strangers if job not in old.killed_jobs]
    return found


def _asked(command: Command) -> JobId:
    """The job that somebody wants to change; empty for what workers write by themselves."""
    if isinstance(command, SubmitJob):
        return command.id
    acts = KillJob | SuspendJob | ResumeJob | PauseJob | DrainJob | SetOptions
    return command.job if isinstance(command, acts) else _NO_JOB


# --- workers ------------------------------------------------------------------------------------


def _of_workers(old: Replica, entry: Entry, new: Replica) -> Iterator[Found]:
    if new.groups is old.groups:
        return
    for group in new.groups:
        if group not in old.groups:
            yield WORKER_JOINED, _NO_JOB, {"worker": group}
    for group in old.groups:
        if group not in new.groups:
            known = {"worker": group, "where": _where(old, group)}
            if entry.writer in ("", group):
                yield WORKER_LEFT, _NO_JOB, known
            else:
                yield WORKER_LOST, _NO_JOB, {**known, "watcher": entry.writer}


def _where(replica: Replica, group: GroupId) -> str:
    """The address of a worker, as far as its peers have announced one: ids say nothing of pods."""
    sites = (replica.peer_sites.get(peer, NOTHING) for peer in replica.groups_index.get(group, ()))
    found = next((site["address"] for site in sites if "address" in site), "")
    return f" at {found}" if found else ""


# --- one job ------------------------------------------------------------------------------------


def _of_job(
    old: Replica, entry: Entry, new: Replica, job: JobId
) -> Iterator[tuple[EventKind, dict[str, Any]]]:
    before, after, command = old.run(job), new.run(job), entry.command
    if job in old.records and job not in new.records:
        yield FORGOTTEN, {}
        return
    if job not in old.records and job in new.jobs:
        tasks, upgraded = len(new.tasks_of(job)), new.upgrades(job)
        if upgraded in (None, loaded_for(job)):
            yield SUBMITTED, {"size": _counted(tasks, "task")}
        else:
            yield REPLACES, {"size": _counted(tasks, "task"), "old": upgraded}
    own = command if getattr(command, "job", job) == job else None
    yield from _asked_for(before, after, own)
    yield from _progress(old, new, job, own)
    if job in new.killed_jobs:
        yield from _killed(old, entry, job)
    elif job in new.completed_jobs:
        yield COMPLETED, {}
    else:
        yield from _peers(old, entry, new, job)


def _asked_for(
    before: JobRun, after: JobRun, command: Command | None
) -> Iterator[tuple[EventKind, dict[str, Any]]]:
    """What somebody has asked of the job, besides to begin and to end."""
    if after.suspended and not before.suspended:
        yield SUSPENDED, {}
    if after.is_paused and not before.is_paused:
        yield PAUSED, {}
    if isinstance(command, ResumeJob):
        yield RESUMED, {}
    if isinstance(command, DrainJob):
        yield DRAINS, {}
    if isinstance(command, SetOptions):
        keys = (
            f"{task}.{key}={value}"
            for task, its in sorted(command.tasks.items())
            for key, value in its.given().items()
        )
        yield OPTIONS_SET, {"options": some(list(keys)) or "what the manifest says"}


def _progress(
    old: Replica, new: Replica, job: JobId, command: Command | None
) -> Iterator[tuple[EventKind, dict[str, Any]]]:
    """How far the job has come by itself."""
    before, after = old.run(job), new.run(job)
    for task, found in sorted(new.partitions(job).items()):
        if old.partitions(job).get(task) is not found:
            yield (
                PARTITIONS,
                {"task": task, "size": _counted(found.count, "partition"), "count": found.count},
            )
    # The running half of a job is gone with its last source or output.
    last = job not in new.jobs
    ended = set(after.exhausted_inputs) - set(before.exhausted_inputs)
    if last and isinstance(command, ExhaustInput | RegisterPartitions):
        ended.add(command.task)
    for task in sorted(ended):
        yield SOURCE_ENDED, {"task": task}
    if isinstance(command, SealOutput) and command.task not in before.sealed_outputs:
        yield SEALED, {"task": command.task}
    if isinstance(command, RestartTask):
        yield RESTARTED, {"task": command.task, "count": after.restarts.get(command.task, 0)}
    if isinstance(command, ReportLoss):
        yield PROCESS_LOST, {"task": command.task}
    if after.rested is not before.rested and after.rested and not restless(new, job):
        yield RESTED, {}


def _killed(old: Replica, entry: Entry, job: JobId) -> Iterator[tuple[EventKind, dict[str, Any]]]:
    command = entry.command
    if isinstance(command, SubmitJob):
        yield REPLACED, {"successor": command.id}
    elif isinstance(command, KillJob):
        yield (FAILED, {"why": command.why}) if command.why else (KILLED, {"why": ""})
    else:
        tasks = old.spec(job).tasks
        held = [each.name for each in tasks if each.flux_policy == "kill"]
        yield KILLED, {"why": f": it lost a peer of a task with fluxPolicy kill ({some(held)})"}


# --- its peers ----------------------------------------------------------------------------------


def _peers(
    old: Replica, entry: Entry, new: Replica, job: JobId
) -> Iterator[tuple[EventKind, dict[str, Any]]]:
    before, after = old.run(job), new.run(job)
    has, had = any(after.allocation.values()), any(before.allocation.values())
    moved = after.allocation_version != before.allocation_version
    if has and moved:
        values = {**_shape(new, job, before, after), "version": after.allocation_version}
        if had:
            yield REALLOCATED, {**values, "why": because(old, entry, job)}
        else:
            yield ALLOCATED, values
    elif not has and (had or job not in old.jobs or before.suspended) and not after.suspended:
        yield WAITS, {"why": why_waiting(new, job) or ""}
    if after.ready is not before.ready and isinstance(entry.command, SignalReady):
        version, news = after.allocation_version, len(after.ready) - len(before.ready)
        size = _counted(news, "peer")
        yield WORKER_READY, {"worker": entry.writer, "size": size, "version": version}
        if after.is_ready and not before.is_ready:
            yield RUNS, {"size": _counted(len(after.ready), "peer"), "version": version}


def _shape(new: Replica, job: JobId, before: JobRun, after: JobRun) -> dict[str, Any]:
    """How many peers each task has, and what has changed."""
    words: list[str] = []
    for task in new.tasks_of(job):
        now = frozenset(after.allocation.get(task, ()))
        was = frozenset(before.allocation.get(task, ()))
        came, went = len(now - was), len(was - now)
        changes = [f"{came} new"] * bool(came and was) + [f"{went} gone"] * bool(went)
        words.append(f"{task} {len(now)}" + (f" ({', '.join(changes)})" if changes else ""))
    peers = [peer for each in after.allocation.values() for peer in each]
    workers = {new.groups_reverse_index[peer] for peer in peers}
    size = f"{_counted(len(peers), 'peer')} on {_counted(len(workers), 'worker')}"
    return {"size": size, "peers": len(peers), "workers": len(workers), "tasks": some(words)}


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def because(old: Replica, entry: Entry, job: JobId) -> str:
    """Why the peers of a job have changed, in words."""
    match entry.command:
        case GroupLeaveCluster(id=group):
            return f"worker {group} {'left' if entry.writer in ('', group) else 'is gone'}"
        case LeaveCluster(id=peer, restart=restart):
            group = old.groups_reverse_index.get(peer, GroupId(UNKNOWN))
            return f"a peer of worker {group} {'begins anew' if restart else 'left'}"
        case AcceptJoinCluster(accepted_joiner=group) | AddVirtualPeer(group_id=group):
            return f"worker {group} has new peers"
        case SubmitJob(id=other):
            return f"job {other} was submitted"
        case SuspendJob(job=other):
            return f"job {other} was suspended"
        case ResumeJob(job=other):
            return "it was resumed" if other == job else f"job {other} was resumed"
        case KillJob(job=other) | SealOutput(job=other) | ExhaustInput(job=other):
            return f"job {other} ended"
        case DrainJob(job=other) | RegisterPartitions(job=other):
            return f"job {other} ended"
    return f"of {entry.command.NAME}"


def _loaded(
    command: Command, old: Replica, new: Replica, of: Callable[[JobId], bool]
) -> Iterator[Found]:
    """Jobs whose savepoint is there now."""
    if isinstance(command, LoadJob) and command.whole and new.records is not old.records:
        for job in upgraded_by(new, command.id):
            if of(job):
                yield SAVEPOINT, job, {"place": command.place, "old": command.origin}


def _waiting_for_more(old: Replica, new: Replica, of: Callable[[JobId], bool]) -> Iterator[Found]:
    """Jobs that wait as before, and for something else."""
    if new.peers is old.peers and new.jobs is old.jobs:
        return
    waiting = (job for job in new.jobs if old.run(job) is new.run(job) and _waits(new, job))
    followed = 0
    for job in waiting:
        if not of(job) or job not in old.jobs:
            continue
        followed += 1
        if followed > WAITING_FOLLOWED_MAX:
            return
        was, now = why_waiting(old, job) or "", why_waiting(new, job) or ""
        if _NUMBERS.sub("", was) != _NUMBERS.sub("", now):
            yield WAITS, job, {"why": now}


def _waits(replica: Replica, job: JobId) -> bool:
    run = replica.run(job)
    return not run.suspended and not any(run.allocation.values())
