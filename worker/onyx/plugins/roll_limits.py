"""Limits after which an output ends a part or transaction and begins a new one."""

from __future__ import annotations

from typing import Protocol

import msgspec


class RollLimits(msgspec.Struct, frozen=True):
    """A part or transaction ends when it reaches any of these."""

    size_bytes: int = 134_217_728
    segments: int = 1_000_000
    age_s: float = 20.0
    """Until then its segments are not acked, and no reader sees them. Nobody in the job waits for
    it: inputs that have little room left, and the end of a job, ask for a flush."""


ROLL_LIMITS = RollLimits()
"""The limits of outputs that name none."""

BUNDLE_LIMITS = RollLimits(age_s=5.0)
"""The limits of parts that a Spark stage in the middle of a job waits for."""

TRANSACTION_LIMITS = RollLimits(4_194_304, 10_000, 1.0)
"""The limits of outputs whose parts are transactions: these are in memory and, to be written
exactly once, in the state log."""
TRANSACTION_BYTES_MAX = 16_777_216
"""The state log is written and read in pieces of this size."""


class RollOptions(Protocol):
    """Options of an output that rolls."""

    @property
    def roll_bytes(self) -> int:
        """Size in bytes."""

    @property
    def roll_segments(self) -> int:
        """Number of segments."""

    @property
    def roll_seconds(self) -> float:
        """Age in seconds."""


def roll_limits(options: RollOptions) -> RollLimits:
    """The limits that a job gives."""
    return RollLimits(options.roll_bytes, options.roll_segments, options.roll_seconds)
