"""How a task gets on."""

from __future__ import annotations

import msgspec
from msgspec import field

from onyx.plugins.attempts import Attempts


class Restart(msgspec.Struct, frozen=True):
    """The peer of a failed task is to be replaced."""

    due_s: float
    afresh: bool
    """Restarts before this one do not count."""


class Status(msgspec.Struct):
    """How a task gets on. All times are monotonic, in seconds."""

    started: bool = False
    """Whether before_task_start was called, so that after_task_stop is due."""
    failed: bool = False
    restart: Restart | None = None
    """What a failed task waits for."""
    ready_since_s: float | None = None
    """When it first began to work."""
    step_since_s: float | None = None
    """Since when its thread is in its present step; None between two."""
    obstacle: str = ""
    """What was Unavailable when the present phase was tried last."""
    log_waiting_s: float | None = None
    """When to log what the phase waits for, if it still waits then."""
    superseded_s: float | None = None
    """Since when another peer owns what this one has begun; None again with a new version."""
    retry_after_s: float = 0.0
    """`start_task` and sealing are not tried again before."""
    batches: int = 0
    """How often the task has come to the end of its loop."""


class Sealing(msgspec.Struct):
    """The sealing of an output whose peer was elected to seal it."""

    wanted: bool = False
    attempts: Attempts = field(default_factory=Attempts)
