"""A tenancy: who has it, how much it holds in the log, and whether there is room for more: pure.

Who has it is a value in the root of its log, and the same for every way to it. Whoever opens a log
and says whose it is writes that, if nobody has; a process of another owner is refused, by whatever
address it comes. Processes that say nothing are let in: commands, programs, and workers that
somebody starts by hand.

A server keeps all nodes in memory, and dies when they are too many: with it stand all jobs of all
tenancies. So what a tenancy holds is bounded where it grows for good, at submissions, and what has
ended goes sooner when the tenancy is half full (`history`).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from onyx.errors import UserError

CROWDED = 0.5
"""The part of a tenancy's room above which what has ended is collected sooner."""
NEARLY_FULL = 0.8
"""The part above which somebody should know."""
_REMEDY = (
    "Kill jobs that are not needed; what has ended is forgotten within minutes, by `onyx gc` at "
    "once. {variable} allows more, for which a ZooKeeper needs memory"
)


class NoRoom(UserError):
    """The tenancy is full; nothing was stored."""


class Usage(msgspec.Struct, frozen=True):
    """What a tenancy holds, and what it may hold."""

    bytes: int | None
    """The size of entries, documents and chunks, as the server counts; None: it does not say."""
    bytes_max: int
    jobs_max: int

    @property
    def is_crowded(self) -> bool:
        """Whether what has ended should go sooner."""
        return self.bytes is not None and self.bytes > CROWDED * self.bytes_max

    @property
    def is_nearly_full(self) -> bool:
        """Whether somebody should make room."""
        return self.bytes is not None and self.bytes >= NEARLY_FULL * self.bytes_max

    def check_bytes(self, more: int) -> None:
        """Raises:
        NoRoom: so many bytes more are too many.
        """
        if self.bytes is not None and self.bytes + more > self.bytes_max:
            remedy = _REMEDY.format(variable="ONYX_LOG_TENANCY_BYTES_MAX")
            raise NoRoom(
                f"the tenancy holds {self.bytes:,} bytes in the log and may hold "
                f"{self.bytes_max:,}: there is no room for {more:,} more. {remedy}"
            )

    def check_jobs(self, running: int, more: int) -> None:
        """Raises:
        NoRoom: so many jobs more, besides those that run or wait, are too many.
        """
        if running + more > self.jobs_max:
            remedy = _REMEDY.format(variable="ONYX_LOG_TENANCY_JOBS_MAX")
            raise NoRoom(
                f"{running:,} jobs of the tenancy run or wait for peers, and {self.jobs_max:,} "
                f"may: there is no room for {more:,} more. {remedy}"
            )


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
