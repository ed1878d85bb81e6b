"""What a group must do in the world after an entry, as data.

`peer.action_runner` and `peer.work.running_tasks` carry these out; the simulator replaces only
them.
"""

from __future__ import annotations

from dataclasses import dataclass

from onyx.ids import AllocationVersion, GroupId, JobId, PeerId, Slot, TaskName


@dataclass(frozen=True, slots=True)
class WatchPulse:
    """Report to the log when this group's pulse is gone (also if it is gone already)."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class UnwatchPulse:
    """Watch the pulse of this group no longer."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class ProbePulse:
    """Look once whether this group is alive and report it when not (a whole cluster that died)."""

    group: GroupId


@dataclass(frozen=True, slots=True)
class BackOff:
    """Wait a random time before the reactions of this entry are written (an aborted join)."""


@dataclass(frozen=True, slots=True)
class StartTask:
    """A virtual peer of this group is allocated to a task."""

    peer: PeerId
    job: JobId
    task: TaskName
    slot: Slot
    version: AllocationVersion


@dataclass(frozen=True, slots=True)
class StopTask:
    """A virtual peer of this group has lost its task. `reason` as in the original's
    scheduler-event: peer-reallocated, peer-left, job-killed, job-completed, and job-suspended."""

    peer: PeerId
    job: JobId
    task: TaskName
    reason: str


@dataclass(frozen=True, slots=True)
class RewireTask:
    """The peer keeps its task, but the job's allocation has a new version: new channels, replay."""

    peer: PeerId
    job: JobId
    task: TaskName
    slot: Slot
    version: AllocationVersion


@dataclass(frozen=True, slots=True)
class JobReady:
    """Every peer of the job has signalled ready for this version: inputs may start."""

    job: JobId
    version: AllocationVersion


@dataclass(frozen=True, slots=True)
class SealTask:
    """All input is exhausted and acked; this peer was elected to seal its output task."""

    peer: PeerId
    job: JobId
    task: TaskName


@dataclass(frozen=True, slots=True)
class RemoveState:
    """Delete the state logs of this job: it is complete, or forgotten."""

    job: JobId


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Find out whether this worker can run a job, and write `vouch-job`."""

    check: str
    digest: str
    """Digest of the job."""


@dataclass(frozen=True, slots=True)
class RestartGroup:
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
