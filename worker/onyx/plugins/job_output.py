"""What an input may learn of an output of another job of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from onyx.errors import UserError


class JobOutput(msgspec.Struct, frozen=True):
    """An output `files` of another job, with the versions that upgraded each other."""

    paths: Mapping[str, str]
    """Where each version that was not known writes, by its id: an absolute path or a URL."""
    state: Literal["runs", "completed", "killed", "forgotten"]
    """What became of the newest version."""


def no_jobs(job: str, task: str, known: Sequence[str]) -> JobOutput:
    """For processes that are in no cluster."""
    raise UserError("there are no other jobs in this process")
