"""LOAD_JOB to AWAIT_READY, before a driver drives: the job, and its part in a version."""

from __future__ import annotations

from onyx.ids import AllocationVersion
from onyx.task.driver.build import build_driver
from onyx.task.driver.task import DriverRuntime, DriverTask, Membership
from onyx.task.parts import TaskStatus, is_allocated, load, note_ready, registered_alone
from onyx.task.suspects import check_task
from onyx.task.table import ADVANCED, WAITING, Answer


def load_job(task: DriverTask) -> Answer:
    """Read the job from the chunk store."""
    assignment = task.assignment
    check_task(assignment)
    job = load(assignment)
    if job is None:
        return WAITING
    metrics = assignment.services.metrics(assignment.job_id, job, assignment.task)
    task.runtime = DriverRuntime(assignment, build_driver(assignment, job), metrics)
    task.job, task.metrics = job, metrics
    return ADVANCED


def take_wiring(task: DriverTask) -> Answer:
    """Join the newest version: a driver has no channels."""
    assignment = task.assignment
    if not is_allocated(assignment):
        return WAITING
    run = assignment.services.replica().run(assignment.job_id)
    task.membership = Membership(AllocationVersion(run.allocation_version))
    return ADVANCED


def register(runtime: DriverRuntime) -> Answer:
    """To the log the job is an input with one partition."""
    done = registered_alone(runtime.assignment, runtime.registration)
    return ADVANCED if done else WAITING


def await_ready(runtime: DriverRuntime, membership: Membership, status: TaskStatus) -> Answer:
    """Wait until the log says that all peers of the job are ready."""
    if not membership.ready:
        return WAITING
    note_ready(runtime.assignment, status)
    return ADVANCED
