"""A peer passes its high-water mark: the inputs of its job stop reading."""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import Position
from onyx.replica.commands.contract import Arguments, Diff, Peer, no_reactions
from onyx.replica.state import Replica

NAME = "backpressure-on"


class Args(Arguments, frozen=True):
    peer: Peer


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    if replica.peer_state.get(args.peer) != "active":
        return replica
    return replace(replica, peer_state=replica.peer_state.set(args.peer, "backpressure"))


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    now = new.peer_state.get(args.peer)
    return {args.peer: now} if now != old.peer_state.get(args.peer) else None


reactions = no_reactions
