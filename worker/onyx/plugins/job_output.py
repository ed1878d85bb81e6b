"""What an input may learn of an output of another job of the cluster, or of an input's journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from onyx.errors import UserError

State = Literal["runs", "completed", "killed", "forgotten"]
"""What became of the newest version of a job."""


class JobOutput(msgspec.Struct, frozen=True):
    """An output `files` of another job, with the versions that upgraded each other."""

    paths: Mapping[str, str]
    """Where each version that was not known writes, by its id: an absolute path or a URL."""
    state: State


class JobJournal(msgspec.Struct, frozen=True):
    """The journal of an input of another job, which keeps it."""

    jobs: tuple[str, ...]
    """The versions that upgraded each other, as far as they are known, the oldest first."""
    partitions: int | None
    """How many the newest version has that was not known; None without any."""
    state: State


def no_jobs(job: str, task: str, known: Sequence[str]) -> JobOutput:
    """For processes that are in no cluster."""
    raise UserError("there are no other jobs in this process")


def no_journals(job: str, task: str, known: Sequence[str]) -> JobJournal | None:
    """For processes that are in no cluster."""
    raise UserError("there are no other jobs in this process")
