"""signal-ready: a peer can receive. With a version it says so for that allocation only."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, PeerId, Position
from onyx.replica import jobs
from onyx.replica.commands.contract import Arguments, Diff, change_state, state_diff
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "signal-ready"
RESCHEDULES = False


class Args(Arguments, frozen=True):
    id: PeerId
    version: int | None = None


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    job = next((job for job in replica.jobs if args.id in jobs.allocated(replica, job)), None)
    if job is None:
        return replica
    replica = change_state(replica, args.id, "idle", "active")
    if args.version is not None and args.version == replica.allocation_version.get(job):
        replica = replace(replica, ready=replica.ready.set(args.id, args.version))
    return replica


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return state_diff(old, new, args.id)


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()
