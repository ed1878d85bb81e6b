"""`handle-exception: restart`: wait, give up the virtual peer, and not for ever.

A restart gives the whole job a new allocation version, so one that follows on the other is worse
than the failure: nobody works, and the log fills. The failed peer keeps its place while it waits,
because its segments would only fail on another one. Counts are per task and in the replica; they
begin anew when a peer has worked for long enough without a failure. Time without a failure was
taken for progress, and not segments: behind one that always fails there are others that do not.
"""

from __future__ import annotations

import logging

from onyx.task.failures.failure import Failure
from onyx.task.task import Restart, Task

logger = logging.getLogger("onyx.task")


def wait_for(task: Task, failure: Failure) -> Failure | None:
    """Plan the restart of a task's peer; the failure for which the job is killed instead when it
    was restarted too often."""
    settings = task.services.settings.task
    now_s = task.services.clock.monotonic_s()
    ready_s = task.ready_since_s
    afresh = ready_s is not None and now_s - ready_s >= settings.restarts_forgotten_after_s
    counts = task.services.replica().restarts.get(task.job_id)
    count = 0 if afresh or counts is None else counts.get(task.name, 0)
    if count >= settings.restarts_max:
        detail = (
            f"restarted {count} times without {settings.restarts_forgotten_after_s:g} s of work in "
            f"between (setting task.restarts_max); the last error: {failure.detail}"
        )
        return Failure(failure.phase, failure.error, detail, failure.segments, failure.segment)
    first_s, most_s = settings.retry_start_interval_s, settings.retry_start_interval_max_s
    wait_s = min(first_s * 2**count, most_s)
    task.restart = Restart(now_s + wait_s, afresh)
    logger.warning(
        "job %s, task %s: restart %d of at most %d in %g s, after %s: %s",
        task.job_id,
        task.name,
        count + 1,
        settings.restarts_max,
        wait_s,
        failure.phase,
        failure.detail,
    )
    return None


def go_on(task: Task) -> None:
    """Restart the peer when it has waited long enough."""
    restart = task.restart
    if restart is None or task.services.clock.monotonic_s() < restart.due_s:
        return
    if not task.services.permitted():
        return
    task.restart = None
    task.propose("restart-task", job=task.job_id, task=task.name, afresh=restart.afresh)
    task.services.restart_peer(task.peer)
