"""What a group must do in the world after an entry, as data.

`peer.incarnation` and `peer.work.running_tasks` carry these out; the simulator replaces only
them.
"""

from __future__ import annotations

import msgspec

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, Slot, TaskName


class WatchPulse(msgspec.Struct, frozen=True):
    """Report to the log when this group's pulse is gone (also if it is gone already)."""

    group: GroupId


class UnwatchPulse(msgspec.Struct, frozen=True):
    """Watch the pulse of this group no longer."""

    group: GroupId


class ProbePulse(msgspec.Struct, frozen=True):
    """Look once whether this group is alive and report it when not (a whole cluster that died)."""

    group: GroupId


class BackOff(msgspec.Struct, frozen=True):
    """Wait a random time before the reactions of this entry are written (an aborted join)."""


class StartTask(msgspec.Struct, frozen=True):
    """A virtual peer of this group is allocated to a task."""

    peer: PeerId
    job: JobId
    task: TaskName
    slot: Slot
    version: AllocationVersion


class StopTask(msgspec.Struct, frozen=True):
    """A virtual peer of this group has lost its task. `reason` as in the original's
    scheduler-event: peer-reallocated, peer-left, job-killed, job-completed, and job-suspended."""

    peer: PeerId
    job: JobId
    task: TaskName
    reason: str


class RewireTask(msgspec.Struct, frozen=True):
    """The peer keeps its task, but the job's allocation has a new version: new channels, replay."""

    peer: PeerId
    job: JobId
    task: TaskName
    slot: Slot
    version: AllocationVersion


class JobReady(msgspec.Struct, frozen=True):
    """Every peer of the job has signalled ready for this version: inputs may start."""

    job: JobId
    version: AllocationVersion


class SealTask(msgspec.Struct, frozen=True):
    """All input is exhausted and acked; this peer was elected to seal its output task."""

    peer: PeerId
    job: JobId
    task: TaskName


class RemoveState(msgspec.Struct, frozen=True):
    """Delete the state logs of this job: it is complete, or forgotten."""

    job: JobId


class AnswerCheck(msgspec.Struct, frozen=True):
    """Find out whether this worker can run a job, and write `vouch-job`."""

    check: str
    digest: str
    """Digest of the job."""


class RestartGroup(msgspec.Struct, frozen=True):
    """This group has been declared dead: start again as a new incarnation."""


Effect = (
    WatchPulse
    | UnwatchPulse
    | ProbePulse
    | BackOff
    | StartTask
    | StopTask
    | RewireTask
    | JobReady
    | SealTask
    | RemoveState
    | AnswerCheck
    | RestartGroup
)
