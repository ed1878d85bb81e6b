"""A peer has room again: inputs go on when no peer of their job is under pressure."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import Position
from onyx.replica.commands.contract import Arguments, Diff, Peer, no_reactions
from onyx.replica.state import Replica

NAME = "backpressure-off"


class Args(Arguments, frozen=True):
    peer: Peer


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if replica.peer_state.get(args.peer) != "backpressure":
        return replica
    return replace(replica, peer_state=replica.peer_state.set(args.peer, "active"))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    now = new.peer_state.get(args.peer)
    return {args.peer: now} if now != old.peer_state.get(args.peer) else None


reactions = no_reactions
