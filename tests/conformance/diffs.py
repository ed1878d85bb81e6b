"""What an entry did, in the words of the original (`replica-diff`), read from two replicas.

We derive reactions and effects from the replicas themselves, so there is no such value in ours.
"""

from __future__ import annotations

from typing import Any

from tests.conformance import replicas

from onyx.replica import members
from onyx.replica.command import Command, Entry
from onyx.replica.commands import (
    AbortJoinCluster,
    AcceptJoinCluster,
    AddVirtualPeer,
    ExhaustInput,
    Gc,
    GroupLeaveCluster,
    KillJob,
    LeaveCluster,
    NotifyJoinCluster,
    PrepareJoinCluster,
    SealOutput,
    SignalReady,
    SubmitJob,
)
from onyx.replica.commands.signal_ready import ReadyPeers
from onyx.replica.state import Replica


def diff_difference(case: dict[str, Any], entry: Entry, old: Replica, new: Replica) -> str | None:
    """None when the entry did what the case says."""
    wanted, got = replicas.text(case["diff"]), _diff(entry.command, old, new)
    if isinstance(wanted, list):
        wanted = {"killed": wanted}
    return None if (wanted or None) == (got or None) else f"diff: got {got}, not {wanted}"


def _diff(command: Command, old: Replica, new: Replica) -> Any:
    match command:
        case PrepareJoinCluster() | NotifyJoinCluster() | AcceptJoinCluster() | AbortJoinCluster():
            return _joining(command, old, new)
        case AddVirtualPeer(id=peer):
            return {"virtual-peer-id": peer}
        case LeaveCluster(id=peer):
            return {"died": peer}
        case GroupLeaveCluster(id=group):
            _, observer, subject = members.close_ring(old.pairs, group)
            return {"died": group, "updated-watch": {"observer": observer, "subject": subject}}
        case SubmitJob(id=job):
            return {"job": job} if job in new.jobs and job not in old.jobs else {}
        case KillJob():
            killed = _gone(new.killed_jobs, old.killed_jobs)
            return {"killed": killed} if killed else None
        case SealOutput(job=job):
            completed = job in new.completed_jobs and job not in old.completed_jobs
            return {"job-completed?": completed, "job": job}
        case ExhaustInput(job=job, task=task):
            return {"job": job, "task": task}
        case SignalReady(jobs=(ReadyPeers(peers=(peer,)),)):
            state = new.peer_state.get(peer)
            return {peer: state} if state != old.peer_state.get(peer) else None
        case Gc():
            return {
                "completed-jobs": _gone(old.completed_jobs, new.completed_jobs) or None,
                "killed-jobs": _gone(old.killed_jobs, new.killed_jobs) or None,
                "tasks": {
                    job: list(old.tasks_of(job)) for job in old.records if job not in new.records
                }
                or None,
                "allocations": None,
            }
    return None


def _joining(command: Command, old: Replica, new: Replica) -> Any:
    match command:
        case PrepareJoinCluster(joiner=joiner):
            if joiner in new.groups and joiner not in old.groups:
                return {"instant-join": joiner}
            watcher = members.watcher_in(new.prepared, joiner)
            chosen = watcher is not None and watcher not in old.prepared
            return {"observer": watcher, "subject": joiner} if chosen else None
        case NotifyJoinCluster(observer=joiner):
            watcher = members.watcher_in(new.accepted, joiner)
            if watcher is None or watcher in old.accepted:
                return None
            return {
                "observer": joiner,
                "subject": members.successor(new, watcher),
                "accepted-observer": watcher,
                "accepted-joiner": joiner,
            }
        case AcceptJoinCluster(accepted_joiner=joiner, accepted_observer=watcher):
            joined = joiner in new.groups and joiner not in old.groups
            return {"observer": watcher, "subject": joiner} if joined else None
        case AbortJoinCluster(id=joiner):
            ended = members.is_joining(old, joiner) and not members.is_joining(new, joiner)
            return {"aborted": joiner} if ended else None
    return None


def _gone(before: Any, after: Any) -> list[str]:
    return [each for each in before if each not in after]
