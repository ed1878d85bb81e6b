"""A question to every worker, and its answers: can it run a job that is about to be submitted?

Every member that reads it answers once (`vouch-job`): it looks up what the job names, and starts
nothing. The replica does not change, so a check that nobody waits for any more leaves no trace, and
a worker that dies of it does not find it again after its restart.

It goes through the log and not over gRPC, because the log reaches every member and nobody else, in
the order of membership, and a client may have no access to the workers' port.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from onyx.ids import GroupId, Position
from onyx.replica.command import Command, Group
from onyx.replica.effects import AnswerCheck, Effect
from onyx.replica.spec import Digest
from onyx.replica.state import Replica

Check = Annotated[str, Meta(min_length=1, max_length=64)]

PROBLEMS_MAX = 20
PROBLEM_CHARACTERS_MAX = 600
"""Together an entry stays far below the size that the log takes."""


class CheckJob(Command, frozen=True):
    """Ask every member whether it can run a job."""

    id: Check
    """The id of this check alone."""
    digest: Digest
    """Digest of the job, in the chunk store."""

    @property
    def chunks(self) -> tuple[str, ...]:
        """The job."""
        return (self.digest,) if self.digest else ()

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change: a check leaves no trace."""
        return replica

    def effects(
        self, position: Position, old: Replica, new: Replica, me: GroupId
    ) -> tuple[Effect, ...]:
        """Every member answers."""
        return (AnswerCheck(self.id, self.digest),) if me in new.groups else ()


class VouchJob(Command, frozen=True):
    """The answer of one member to a `check-job`."""

    id: Check
    group: Group
    problems: Annotated[
        tuple[Annotated[str, Meta(max_length=PROBLEM_CHARACTERS_MAX)], ...],
        Meta(max_length=PROBLEMS_MAX),
    ] = ()
    """Why it cannot; empty if it can."""

    def apply(self, replica: Replica, position: Position) -> Replica:
        """No change: only readers of the log use the answer."""
        return replica
