"""Where a processor runs."""

from __future__ import annotations

import msgspec


class Context(msgspec.Struct, frozen=True):
    """Where a processor runs."""

    job_id: str
    task: str
    index: int
    """Number of this processor among those of the task, from 0."""
    processors: int
    """How many the task has now: one a peer."""
    parents: tuple[str, ...]
    """The tasks that segments come from, by ordinal."""
