"""The state that the query of a job keeps between two micro-batches."""

from __future__ import annotations

from onyx.model.job import Job
from onyx.model.workflow import is_unbounded, stateful_tasks
from onyx.spark.driver.states import States
from onyx.state.opening import state_location
from onyx.task.parts import Assignment


def states_of(assignment: Assignment, job: Job) -> States | None:
    """The states of the tasks of a job; None if none is kept between two of its batches."""
    if not stateful_tasks(job) or not is_unbounded(job):
        return None
    services = assignment.services
    store, location = services.state_store(durable=True), state_location(services.settings)
    return States(store, location, assignment.job_id, assignment.peer)
