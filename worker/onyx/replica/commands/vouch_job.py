"""A member says whether it can run the job of a check (`check-job`), for who follows the log."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from onyx.ids import Position
from onyx.replica.command import Arguments, Diff, Group, no_reactions
from onyx.replica.commands.check_job import Check
from onyx.replica.state import Replica

NAME = "vouch-job"
PROBLEMS_MAX = 20
PROBLEM_CHARACTERS_MAX = 600
"""Together an entry stays far below the size that the log takes."""


class Args(Arguments, frozen=True):
    id: Check
    group: Group
    problems: Annotated[
        tuple[Annotated[str, Meta(max_length=PROBLEM_CHARACTERS_MAX)], ...],
        Meta(max_length=PROBLEMS_MAX),
    ] = ()
    """Why it cannot; empty if it can."""


def apply(replica: Replica, args: Args, position: Position) -> Replica:
    return replica


def diff(old: Replica, new: Replica, args: Args) -> Diff:
    return None


reactions = no_reactions
