"""A peer can receive on all its channels of an allocation version.

Without `version`, as in the original, it speaks of the present one. A signal for another version is
late and means nothing: its channels are gone.
"""

from __future__ import annotations

from dataclasses import replace

from onyx.ids import Position
from onyx.replica import jobs
from onyx.replica.command import Arguments, Diff, Peer, no_reactions
from onyx.replica.state import Replica

NAME = "signal-ready"


class Args(Arguments, frozen=True):
    id: Peer
    version: int | None = None


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    place = jobs.assignment(replica, args.id)
    if place is None:
        return replica
    current = replica.allocation_version.get(place[0])
    if args.version is not None and args.version != current:
        return replica
    state, ready = replica.peer_state, replica.ready
    if state.get(args.id, "idle") == "idle":
        state = state.set(args.id, "active")
    if current is not None and ready.get(args.id) != current:
        ready = ready.set(args.id, current)
    if state is replica.peer_state and ready is replica.ready:
        return replica
    return replace(replica, peer_state=state, ready=ready)


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    now = new.peer_state.get(args.id)
    return {args.id: now} if now != old.peer_state.get(args.id) else None


reactions = no_reactions
