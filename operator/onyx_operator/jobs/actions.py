"""What a plan for an OnyxJob may ask for, as values. `act` carries them out in order, and stops at
the first that fails. All actions may be repeated."""

from __future__ import annotations

from dataclasses import dataclass

from onyx.ids import JobId
from onyx.replica.commands import DrainJob, KillJob, ResumeJob, SetOptions, SuspendJob
from onyx_operator.jobs.record import Record


@dataclass(frozen=True, slots=True)
class Remember:
    """Write a record into the status, before what it announces is done."""

    record: Record


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit the job under this id."""

    job: JobId
    upgrades: JobId | None = None
    """The old job, which the submission kills."""
    remarks: str = ""
    """What is not carried over from it, for the event."""


@dataclass(frozen=True, slots=True)
class Control:
    """Append a command about a job to the log."""

    command: KillJob | SuspendJob | ResumeJob | DrainJob | SetOptions


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete the object, whose job ended long enough ago."""

    phase: str
    message: str
    """Phase and message of the job's end, for the event."""


Action = Remember | Submit | Control | DeleteObject
