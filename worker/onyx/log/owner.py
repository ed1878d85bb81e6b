"""Who has a tenancy: a value in the root of its log, and the same for every way to it.

Whoever opens a log and says whose it is writes that, if nobody has; a process of another owner is
refused, by whatever address it comes. Processes that say nothing are let in: commands, programs,
and workers that somebody starts by hand.
"""

from __future__ import annotations

from typing import Protocol

from onyx.errors import UserError


class TenancyTaken(UserError):
    """The tenancy belongs to somebody else."""

    def __init__(self, tenancy: str, owner: str) -> None:
        super().__init__(
            f"tenancy {tenancy} belongs to {owner}: choose another tenancy, or end that one"
        )
        self.owner = owner


class Owned(Protocol):
    """A log, as far as this module knows it."""

    def claim(self, owner: str) -> str:
        """Write who has the tenancy if nobody has; return who it is."""
        ...


def check_owner(log: Owned, tenancy: str, owner: str) -> None:
    """Claim a tenancy for an owner; nothing if it is empty.

    Raises:
        TenancyTaken: it belongs to another one.
    """
    found = log.claim(owner) if owner else owner
    if found != owner:
        raise TenancyTaken(tenancy, found)
