"""One virtual peer leaves. A job with a task of flux policy `kill` that holds it is killed.

With `restart?` its group announces the peer again under a new id.
"""

from __future__ import annotations

from msgspec import field

from onyx.ids import GroupId, Position
from onyx.replica import jobs, members
from onyx.replica.command import Arguments, Diff, Group, Peer
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "leave-cluster"


class Args(Arguments, frozen=True):
    id: Peer
    group_id: Group | None = None
    restart: bool = field(default=False, name="restart?")
    restarted_id: Peer | None = None


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if args.id not in replica.groups_reverse_index:
        return replica
    return members.remove_peers(jobs.kill_by_flux(replica, (args.id,)), (args.id,))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return {"died": args.id}


def reactions(
    old: Replica, new: Replica, diff: Diff, args: Args, me: GroupId
) -> tuple[Command, ...]:
    mine = old.groups_reverse_index.get(args.id) == me
    if not (mine and args.restart and args.restarted_id):
        return ()
    again = {
        "id": args.restarted_id,
        "group-id": me,
        "peer-site": dict(old.peer_sites.get(args.id, {})),
        "tags": list(old.peer_tags.get(args.id, ())),
    }
    return (Command("add-virtual-peer", again),)
