"""The phases of a task by name: where it is, what it is recorded in, and where a failure happened.

The order of phases is in the tables of `task/`; a query of Spark does some of them without a table.
"""

from __future__ import annotations

import enum


class Phase(enum.StrEnum):
    """Where a task is."""

    LOAD_JOB = "load-job"
    """Reading the job from the chunk store until it is here."""
    START_TASK = "start-task"
    """Asking the lifecycles' start_task until all say true."""
    BUILD = "build-plugin"
    """Resolving functions and building the plugin."""
    BEFORE_TASK = "before-task-start"
    """Calling the lifecycles' before_task_start once."""
    WIRE = "wire"
    """Taking the newest wiring: old channels dropped, a new inbox opened."""
    RECOVER = "recover"
    """Taking over: inputs register partitions and give away those of others, outputs fence off the
    dead, tasks with state read the state logs of those before."""
    SIGNAL_READY = "signal-ready"
    """Logging that this peer can receive in this allocation version."""
    AWAIT_READY = "await-ready"
    """Waiting until every peer of the job is ready."""
    RESUME = "resume"
    """Inputs open the partitions that are new to them at their frontiers, for which journals are
    taken over, and schedule what was pending for replay."""
    BEFORE_BATCH = "before-batch"
    """Calling the lifecycles' before_batch. The loop begins here, or with the next phase if there
    is no such hook."""
    READ_BATCH = "read-batch"
    """Taking segments from the source or the inbox, tagging those of a source."""
    AFTER_READ_BATCH = "after-read-batch"
    """Calling the lifecycles' after_read_batch."""
    LOOK_UP = "look-up"
    """Asking other tasks for the states that segments get, until all are here."""
    APPLY_FN = "apply-fn"
    """Calling the user's function over the batch."""
    AFTER_APPLY_FN = "after-apply-fn"
    """Calling the lifecycles' after_apply_fn."""
    ROUTE = "route"
    """Flow conditions, and what becomes of segments that have failed: before anything counts."""
    ASSIGN_WINDOWS = "assign-windows"
    """The batch changes the state of the task, be it windows or not, and what fires is emitted."""
    SEND = "send"
    """Building the new segments with their lineage, or writing to the plugin; then what has been
    emitted and is in the state log."""
    WRITE_BATCH = "write-batch"
    """Handing batches and control items to the next peers until all are taken."""
    AFTER_BATCH = "after-batch"
    """Calling the lifecycles' after_batch; acks are folded and sent, of a task with state when its
    log has the batch."""
    SEAL = "seal"
    """Sealing the output of the whole task on behalf of all its peers."""
    TAKE_OVER = "take-over"
    """Asking whether a result of the job on Spark is committed; fencing off the dead if not."""
    RUN_QUERY = "run-query"
    """Waiting for the process that runs the job on Spark."""
    PUBLISH = "publish"
    """Committing what that process has staged, and publishing it."""
    COMPLETE = "complete"
    """Logging that all is read, and then that all is written."""
