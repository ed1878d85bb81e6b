"""The replicated state machine: from a replica and an entry to the next replica, and what follows.

`apply` is total: whatever stands in the log, every peer comes to the same value and none raises. An
unknown command, bad arguments or a repeat change nothing but counters. Rescheduling happens here,
once, after commands that change members or jobs.

Reactions are entries to write in return; effects are what one group has to do in the world. Effects
about tasks are computed from the old and the new value (level-based), so no command can forget one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, TaskName
from onyx.replica import jobs
from onyx.replica.commands import COMMANDS
from onyx.replica.commands.contract import Arguments, CommandModule, Diff
from onyx.replica.commands.prepare_join_cluster import candidates
from onyx.replica.effects import (
    BackOff,
    Effect,
    JobReady,
    ProbePulse,
    RestartGroup,
    RewireTask,
    SealOutput,
    StartTask,
    StopTask,
)
from onyx.replica.entry import Command, Entry
from onyx.replica.scheduling import reconfigure
from onyx.replica.state import Replica

Place = tuple[JobId, TaskName]


def decode(command: Command) -> tuple[CommandModule, Arguments] | None:
    """The command's module and arguments; None when it is unknown or they are not well-formed."""
    module = COMMANDS.get(command.fn)
    if module is None:
        return None
    try:
        return module, msgspec.convert(dict(command.args), module.Args)
    except (msgspec.ValidationError, TypeError, ValueError):
        return None


def apply(replica: Replica, entry: Entry) -> Replica:
    """The replica after an entry. Never raises."""
    decoded = decode(entry.command)
    if decoded is None:
        return replace(replica, version=entry.position, rejected=replica.rejected + 1)
    if entry.writer:
        writer = GroupId(entry.writer)
        if entry.sequence <= replica.last_sequence.get(writer, 0):
            return replace(replica, version=entry.position)
        if writer not in replica.left:
            sequences = replica.last_sequence.set(writer, entry.sequence)
            replica = replace(replica, last_sequence=sequences)
    module, args = decoded
    changed = module.apply(replica, args, entry.position)
    if module.RESCHEDULES and changed is not replica:
        changed = _count_versions(replica, reconfigure(changed), entry)
    return replace(jobs.elect_sealers(changed, entry.position), version=entry.position)


def diff(entry: Entry, old: Replica, new: Replica) -> Diff:
    """What an entry changed, as plain data."""
    decoded = decode(entry.command)
    if decoded is None:
        return None
    module, args = decoded
    return module.diff(old, new, args)


def reactions(entry: Entry, old: Replica, new: Replica, me: GroupId) -> tuple[Command, ...]:
    """Entries that group `me` must write in return."""
    decoded = decode(entry.command)
    if decoded is None:
        return ()
    module, args = decoded
    return module.reactions(old, new, args, entry.position, me)


def effects(entry: Entry, old: Replica, new: Replica, me: GroupId) -> tuple[Effect, ...]:
    """What group `me` has to do in the world after an entry, in order."""
    if me in new.left and me not in old.left:
        return (RestartGroup(),)
    return (*_join_effects(entry, old, new, me), *_task_effects(old, new, me))


def _count_versions(old: Replica, new: Replica, entry: Entry) -> Replica:
    """A job's allocation has the position of the entry that changed it, or its ackers, last."""
    versions = new.allocation_version
    for job in new.jobs:
        before = (old.allocations.get(job), old.ackers.get(job))
        if (new.allocations.get(job), new.ackers.get(job)) != before:
            versions = versions.set(job, entry.position)
    return new if versions is new.allocation_version else replace(new, allocation_version=versions)


def _join_effects(entry: Entry, old: Replica, new: Replica, me: GroupId) -> list[Effect]:
    args: Any = entry.command.args
    if entry.command.fn == "abort-join-cluster" and args.get("id") == me:
        return [BackOff()] if me in new.aborted else []
    refused = entry.command.fn == "prepare-join-cluster" and me in new.aborted
    if not refused or args.get("joiner") != me:
        return []
    busy = sorted(set(old.groups) - set(candidates(old, me)))
    return [ProbePulse(busy[entry.position % len(busy)])] if busy else []


def _task_effects(old: Replica, new: Replica, me: GroupId) -> list[Effect]:
    if _same_allocations(old, new):
        return []
    before, after = _places(old, me), _places(new, me)
    stopped: list[Effect] = [
        StopTask(peer, *place, _reason(new, me, peer, place))
        for peer, place in sorted(before.items())
        if after.get(peer) != place
    ]
    running: list[Effect] = []
    for peer, (job, task) in sorted(after.items()):
        version = AllocationVersion(new.allocation_version[job])
        moved = before.get(peer) != (job, task)
        if moved or version != old.allocation_version.get(job):
            effect = StartTask if moved else RewireTask
            running.append(effect(peer, job, task, new.task_slot_ids[job][task][peer], version))
    mine = sorted({job for job, _ in after.values()})
    ready = [
        JobReady(job, AllocationVersion(new.allocation_version[job]))
        for job in mine
        if is_ready(new, job) and not _was_ready(old, new, job)
    ]
    return [*stopped, *running, *ready, *_seals(old, new, after)]


def is_ready(replica: Replica, job: JobId) -> bool:
    """Whether every peer of a job has signalled ready for its present allocation."""
    version = replica.allocation_version.get(job)
    peers = jobs.allocated(replica, job)
    return bool(peers) and all(replica.ready.get(peer) == version for peer in peers)


def _was_ready(old: Replica, new: Replica, job: JobId) -> bool:
    same = old.allocation_version.get(job) == new.allocation_version.get(job)
    return same and is_ready(old, job)


def _seals(old: Replica, new: Replica, after: dict[PeerId, Place]) -> list[Effect]:
    found: list[Effect] = []
    for job in sorted(new.sealers):
        for task, peer in sorted(new.sealers[job].items()):
            before = old.sealers.get(job)
            elected = before is None or before.get(task) != peer
            version = new.allocation_version.get(job)
            rewired = version != old.allocation_version.get(job)
            if peer in after and (elected or rewired):
                found.append(SealOutput(peer, job, task))
    return found


def _places(replica: Replica, group: GroupId) -> dict[PeerId, Place]:
    mine = frozenset(replica.groups_index.get(group, ()))
    return {
        peer: (job, task)
        for job in replica.allocations
        for task, peers in replica.allocations[job].items()
        for peer in peers
        if peer in mine
    }


def _same_allocations(old: Replica, new: Replica) -> bool:
    """The cheap answer for the many entries that move nobody."""
    return (
        old.allocations is new.allocations
        and old.ready is new.ready
        and old.sealers is new.sealers
        and old.allocation_version is new.allocation_version
    )


def _reason(replica: Replica, me: GroupId, peer: PeerId, place: Place) -> str:
    job, _ = place
    if job in replica.completed_jobs:
        return "job-completed"
    if job in replica.killed_jobs:
        return "job-killed"
    return "peer-reallocated" if peer in replica.peers else "peer-left"
