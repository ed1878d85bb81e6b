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
    return first_partition(assignment, registration, 1, proposes=True) is not None


def first_partition(
    assignment: Assignment, registration: Registration, count: int, proposes: bool
) -> int | None:
    """Number of the first of the partitions of a task that is so many; None until the log has it.

    Args:
        proposes: whether this peer has them numbered, for all peers of the task.
    """
    job, task = assignment.job_id, assignment.task
    registered = assignment.services.replica().partitions(job).get(task)
    if registered is not None:
        return registered.first
    if proposes and not registration.proposed:
        registration.proposed = True
        assignment.propose(RegisterPartitions(job=job, task=task, count=count))
    return None


def signal_ready(assignment: Assignment, version: AllocationVersion) -> Answer:
    """Propose that this peer can receive in this allocation version."""
    assignment.propose(signal(assignment.job_id, version, assignment.peer))
    return ADVANCED


def note_ready(assignment: Assignment, status: Status) -> None:
    """All peers of the job are ready: from now on the task works."""
    if status.ready_since_s is None:
        status.ready_since_s = assignment.clock.monotonic_s()
