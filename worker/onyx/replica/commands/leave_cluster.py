"""leave-cluster: one virtual peer leaves. Under flux policy `kill` that ends its job."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, JobId, PeerId, Position
from onyx.replica import jobs
from onyx.replica.commands.contract import Arguments, Diff
from onyx.replica.entry import Command
from onyx.replica.members import remove_peers, without
from onyx.replica.state import NOTHING, Replica

NAME = "leave-cluster"
RESCHEDULES = True


class Args(Arguments, frozen=True):
    id: PeerId
    group_id: GroupId | None = None


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    group = replica.groups_reverse_index.get(args.id, args.group_id)
    for job in _killed_by(replica, args.id):
        ended = jobs.end(replica, job)
        replica = replace(ended, killed_jobs=(*ended.killed_jobs, job))
    replica = remove_peers(replica, (args.id,))
    if group is None:
        return replica
    index, orphans = replica.groups_index, replica.orphaned_peers
    if group in index:
        index = index.set(group, tuple(each for each in index[group] if each != args.id))
    if group in orphans:
        left = tuple(each for each in orphans[group] if each != args.id)
        orphans = orphans.set(group, left) if left else without(orphans, group)
    return replace(replica, groups_index=index, orphaned_peers=orphans)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return {"died": args.id}


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()


def _killed_by(replica: Replica, peer: PeerId) -> list[JobId]:
    return [
        job
        for job in sorted(replica.allocations)
        for task, peers in sorted(replica.allocations[job].items())
        if peer in peers and replica.flux_policies.get(job, NOTHING).get(task) == "kill"
    ]
