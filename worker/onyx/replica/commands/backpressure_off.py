"""backpressure-off: the peer's state changes from `backpressure` to `active`."""

from __future__ import annotations

from onyx.ids import GroupId, PeerId, Position
from onyx.replica.commands.contract import Arguments, Diff, change_state, state_diff
from onyx.replica.entry import Command
from onyx.replica.state import Replica

NAME = "backpressure-off"
RESCHEDULES = False


class Args(Arguments, frozen=True):
    peer: PeerId


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    return change_state(replica, args.peer, "backpressure", "active")


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return state_diff(old, new, args.peer)


def reactions(
    old: Replica, new: Replica, args: Args, position: Position, me: GroupId
) -> tuple[Command, ...]:
    return ()
