"""A joiner gives up this attempt and, after a random wait (`BackOff`), tries again.

Other than the original, whose guard looks among the peers only, a group that has joined cannot be
aborted: it would be marked although it is a member.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import GroupId, PeerId, Position
from onyx.replica import ring
from onyx.replica.command import Arguments, Diff, Group
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "abort-join-cluster"


class Args(Arguments, frozen=True):
    id: Group


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if not _may_abort(replica, args.id):
        return replica
    prepared = ring.watcher_in(replica.prepared, args.id)
    accepted = ring.watcher_in(replica.accepted, args.id)
    return replace(
        replica,
        prepared=replica.prepared if prepared is None else replica.prepared.delete(prepared),
        accepted=replica.accepted if accepted is None else replica.accepted.delete(accepted),
        aborted=replica.aborted.set(args.id, None),
    )


def _may_abort(replica: Replica, group: GroupId) -> bool:
    is_member = group in replica.groups or PeerId(group) in replica.peers
    return not is_member and group not in replica.left


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    ended = ring.is_joining(old, args.id) and not ring.is_joining(new, args.id)
    return {"aborted": args.id} if ended else None


def reactions(
    old: Replica, new: Replica, diff: Diff, args: Args, me: GroupId
) -> tuple[Command, ...]:
    if me != args.id or not _may_abort(old, me):
        return ()
    return (Command("prepare-join-cluster", {"joiner": me}),)
