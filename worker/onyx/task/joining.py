"""How a peer joins an allocation version, whatever kind of task it has."""

from __future__ import annotations

from onyx.ids import AllocationVersion
from onyx.replica.commands.register_partitions import RegisterPartitions
from onyx.replica.commands.signal_ready import signal
from onyx.task.parts.assignment import Assignment, Registration
from onyx.task.parts.status import Status
from onyx.task.table import ADVANCED, Answer


def is_allocated(assignment: Assignment) -> bool:
    """Whether the newest replica has the peer on its task. If not, a Stop is on its way."""
    allocation = assignment.services.replica().run(assignment.job_id).allocation
    return assignment.peer in allocation.get(assignment.task, ())


def registered_alone(assignment: Assignment, registration: Registration) -> bool:
    """Make sure that a task is registered which is a single partition to the log."""
    job, task = assignment.job_id, assignment.task
    if task in assignment.services.replica().partitions(job):
        return True
    if not registration.proposed:
        registration.proposed = True
        assignment.propose(RegisterPartitions(job=job, task=task, count=1))
    return False


def signal_ready(assignment: Assignment, version: AllocationVersion) -> Answer:
    """Propose that this peer can receive in this allocation version."""
    assignment.propose(signal(assignment.job_id, version, assignment.peer))
    return ADVANCED


def note_ready(assignment: Assignment, status: Status) -> None:
    """All peers of the job are ready: from now on the task works."""
    if status.ready_since_s is None:
        status.ready_since_s = assignment.clock.monotonic_s()
