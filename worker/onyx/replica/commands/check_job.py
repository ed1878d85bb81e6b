"""Somebody wants to know whether this cluster's workers can run a job, before it is submitted.

Every member that reads it answers once (`vouch-job`): it looks up what the job names, and starts
nothing. The replica does not change, so a check that nobody waits for any more leaves no trace, and
a worker that dies of it does not find it again when it comes back.

It goes through the log and not over gRPC, because the log reaches every member and nobody else, in
the order of membership; and who asks may be a client that the workers' port is closed to.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from onyx.ids import Position
from onyx.replica.command import Arguments, Diff, Digest, no_reactions
from onyx.replica.state import Replica

NAME = "check-job"
Check = Annotated[str, Meta(min_length=1, max_length=64)]


class Args(Arguments, frozen=True):
    id: Check
    """Of this check alone."""
    digest: Digest
    """Of the job, in the chunk store."""


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    return replica


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return None


reactions = no_reactions
