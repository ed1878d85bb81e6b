"""A member answers a `check-job`: whether it can run the job, and why not."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from onyx.ids import Position
from onyx.replica.command import Command, Group
from onyx.replica.commands.check_job import Check
from onyx.replica.state import Replica

PROBLEMS_MAX = 20
PROBLEM_CHARACTERS_MAX = 600
"""Together an entry stays far below the size that the log takes."""


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
