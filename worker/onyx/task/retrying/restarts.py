"""`handle-exception: restart`: wait, give up the virtual peer, and not for ever.

A restart gives the whole job a new allocation version, so one that follows on the other is worse
than the failure: nobody works, and the log fills. The failed peer keeps its slot while it waits,
because its segments would only fail on another one. Counts are per task and in the replica; they
begin anew when a peer has worked for long enough without a failure. Time without a failure was
taken for progress, and not segments: behind one that always fails there are others that do not.
"""

from __future__ import annotations

import logging

from onyx.program.failure import Failure
from onyx.replica.commands.restart_task import RestartTask
from onyx.task.parts.assignment import Assignment
from onyx.task.parts.status import Restart, Status

logger = logging.getLogger("onyx.task")


def wait_for(assignment: Assignment, status: Status, failure: Failure) -> Failure | None:
    """Plan the restart of a task's peer; the failure for which the job is killed instead when it
    was restarted too often."""
    settings = assignment.services.settings.task
    now_s = assignment.clock.monotonic_s()
    ready_s = status.ready_since_s
    afresh = ready_s is not None and now_s - ready_s >= settings.restarts_forgotten_after_s
    counts = assignment.services.replica().run(assignment.job_id).restarts
    count = 0 if afresh else counts.get(assignment.task, 0)
    if count >= settings.restarts_max:
        detail = (
            f"restarted {count} times without {settings.restarts_forgotten_after_s:g} s of work in "
            f"between (setting task.restarts_max); the last error: {failure.detail}"
        )
        return Failure(failure.phase, failure.error, detail, failure.segments, failure.segment)
    first_s, most_s = settings.retry_start_interval_s, settings.retry_start_interval_max_s
    wait_s = min(first_s * 2**count, most_s)
    status.restart = Restart(now_s + wait_s, afresh)
    logger.warning(
        "job %s, task %s: restart %d of at most %d in %g s, after %s: %s",
        assignment.job_id,
        assignment.task,
        count + 1,
        settings.restarts_max,
        wait_s,
        failure.phase,
        failure.detail,
    )
    return None


def go_on(assignment: Assignment, status: Status) -> None:
    """Restart the peer when it has waited long enough."""
    restart = status.restart
    if restart is None or assignment.clock.monotonic_s() < restart.due_s:
        return
    if not assignment.services.permitted():
        return
    status.restart = None
    assignment.propose(
        RestartTask(job=assignment.job_id, task=assignment.task, afresh=restart.afresh)
    )
    assignment.services.restart_peer(assignment.peer)
