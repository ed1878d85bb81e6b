"""Which kind of task a task of a job is, and a new task of that kind."""

from __future__ import annotations

from collections.abc import Callable

from onyx.base.on_demand import OnDemand
from onyx.ids import JobId, PeerId, TaskName
from onyx.replica.state import Replica
from onyx.task.batch_task import BatchTask
from onyx.task.batches import BATCHES
from onyx.task.services import Services
from onyx.task.table import Kind
from onyx.task.task import Task

Wake = Callable[[], None]

_NEW_DRIVER: OnDemand[Callable[[Services, PeerId, JobId, TaskName, Wake], Task]]
_NEW_DRIVER = OnDemand("onyx.task.driver.behaviour:new_driver")


def kind_of(replica: Replica, job: JobId, task: TaskName) -> Kind:
    """What a task does at its end of the workflow of a job that runs."""
    spec = replica.spec(job).by_name[task]
    if spec.input and spec.output:
        return Kind.STAGE if spec.fed_by else Kind.DRIVER
    if spec.input:
        return Kind.INPUT
    return Kind.OUTPUT if spec.output else Kind.FUNCTION


def new_task(
    services: Services,
    peer: PeerId,
    job: JobId,
    task: TaskName,
    kind: Kind,
    wake: Wake,
) -> Task:
    """A task that is yet to load its job.

    Args:
        wake: steps the task soon; from any thread.
    """
    if kind is Kind.DRIVER:
        return _NEW_DRIVER.load()(services, peer, job, task, wake)
    return BatchTask(BATCHES, services, peer, job, task, kind, wake)
