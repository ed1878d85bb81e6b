"""What a plugin may learn of other jobs of the cluster: an output, the journal of an input, and the
job that its own upgrades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, Protocol, runtime_checkable

import msgspec

from onyx.errors import UserError
from onyx.ids import JobId

State = Literal["runs", "completed", "killed", "forgotten"]
"""What became of the newest version of a job."""


class JobOutput(msgspec.Struct, frozen=True):
    """An output `files` of another job, with the versions that upgraded each other."""

    paths: Mapping[str, str]
    """Where each version that was not known writes, by its id: an absolute path or a URL."""
    state: State
    last: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)
    """The names of the last part of each writer, of each version that has sealed the output."""


@runtime_checkable
class FollowedOutput(Protocol):
    """The method that an output has in addition if other jobs follow what it publishes."""

    def last_parts(self) -> Sequence[str]:
        """The name of the last part of each writer of the task. Called after `seal`, when all is
        published. Raises like `Output.write`."""
        ...


class JobJournal(msgspec.Struct, frozen=True):
    """The journal of an input of another job, which keeps it."""

    jobs: tuple[str, ...]
    """The versions that upgraded each other, as far as they are known, the oldest first."""
    partitions: int | None
    """How many the newest version has that was not known; None without any."""
    state: State


class UpgradedJob(msgspec.Struct, frozen=True):
    """The old job that a job upgrades."""

    job: JobId
    began: bool
    """Whether it has read segments, so that its outputs may have written."""


class OldJournal(msgspec.Struct, frozen=True):
    """The journal of the input of the same name in the job that a job upgrades."""

    job: JobId
    positions: tuple[int, ...]
    """How far it has processed each partition."""
    states: tuple[Any, ...]
    """The states of the cursors of these."""


def no_jobs(job: str, task: str, known: Sequence[str]) -> NoReturn:
    """For processes that are in no cluster."""
    raise UserError("there are no other jobs in this process")
