"""What a plan for an OnyxJob may ask for, as values. `act` carries them out in order, and stops at
the first that fails. All actions may be repeated."""

from __future__ import annotations

import msgspec

from onyx.ids import JobId
from onyx.replica.commands import DrainJob, KillJob, ResumeJob, SetOptions, SuspendJob
from onyx_operator.jobs.record import Record


class Remember(msgspec.Struct, frozen=True):
    """Write a record into the status, before what it announces is done."""

    record: Record


class Submit(msgspec.Struct, frozen=True):
    """Submit the job under this id."""

    job: JobId
    upgrades: JobId | None = None
    """The old job, which the submission kills."""
    remarks: str = ""
    """What is not carried over from it, for the event."""


class Control(msgspec.Struct, frozen=True):
    """Append a command about a job to the log."""

    command: KillJob | SuspendJob | ResumeJob | DrainJob | SetOptions


class DeleteObject(msgspec.Struct, frozen=True):
    """Delete the object, whose job ended long enough ago."""

    phase: str
    message: str
    """Phase and message of the job's end, for the event."""


Action = Remember | Submit | Control | DeleteObject
