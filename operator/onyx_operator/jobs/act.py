"""Carries out the actions of a plan: against the API server and against the log.

Every write to the object carries the version that the plan was made from, so that two operators, or
an operator and a user, never overwrite each other's: the loser looks again.
"""

from __future__ import annotations

from typing import Any, assert_never

from onyx.upgrade.plan import upgrading
from onyx_operator.jobs.actions import (
    Action,
    DeleteObject,
    Remember,
    Submit,
    Tell,
)
from onyx_operator.jobs.record import Record, identity
from onyx_operator.jobs.spec import Spec
from onyx_operator.kube import JOBS, Kube, Object
from onyx_operator.logs.owners import owner_of
from onyx_operator.logs.view import LogView
from onyx_operator.metrics import OperatorMetrics

_EVENTS = {
    "suspend-job": ("Suspending", "job {job} gives its peers to others"),
    "resume-job": ("Resuming", "job {job} asks for peers again"),
    "drain-job": ("Draining", "job {job} reads nothing new and completes what is pending"),
    "kill-job": ("Killing", "job {job} is killed"),
}
"""Reason and message of the event that follows a command."""


class Actor:
    """Everything that changes the world for an OnyxJob.

    All methods raise KubeError, NotFound and Conflict of the API server, and Unavailable.
    """

    def __init__(self, kube: Kube, metrics: OperatorMetrics) -> None:
        self._kube = kube
        self._metrics = metrics

    async def do(self, action: Action, body: Object, spec: Spec, view: LogView | None) -> Object:
        """Carry out one action; the object as it is after it."""
        match action:
            case Remember(record):
                return await self.write_status(body, _remembered(record))
            case Submit(job, old):
                assert view is not None
                assert spec.job is not None
                wanted = spec.job if old is None else upgrading(spec.job, old)
                await view.submit(job, wanted, str(owner_of(body, self._kube.mark)))
                self._metrics.log_written("submit-job")
                await self._kube.event(body, "Submitted", _submitted(action))
            case Tell():
                assert view is not None
                await self.tell(body, view, action)
            case DeleteObject():
                uid = body["metadata"]["uid"]
                await self._kube.delete(JOBS, spec.namespace, spec.name, uid)
            case _:
                assert_never(action)
        return body

    async def tell(self, body: Object, view: LogView, action: Tell) -> None:
        """Write a command about a job of an object, and an event about it."""
        command = action.command
        await view.tell(command)
        self._metrics.log_written(command.NAME)
        reason, message = _EVENTS[command.NAME]
        await self._kube.event(body, reason, message.format(job=command.job))

    async def write_status(self, body: Object, patch: dict[str, Any]) -> Object:
        """Merge a patch into the status of this version of the object."""
        change = {"metadata": _this_version(body), "status": patch}
        metadata = body["metadata"]
        return await self._kube.patch(
            JOBS, metadata["namespace"], metadata["name"], change, "status"
        )


def _this_version(body: Object) -> Object:
    return {"uid": body["metadata"]["uid"], "resourceVersion": body["metadata"]["resourceVersion"]}


def _submitted(action: Submit) -> str:
    told = f"job {action.job} is in the log"
    if action.upgrades is not None:
        told += f", upgrades job {action.upgrades}"
    return f"{told}; {action.remarks}" if action.remarks else told


def _remembered(record: Record) -> dict[str, Any]:
    """A record as an intent; times and progress of the previous job go."""
    return {
        "phase": "Pending",
        "reason": "Submitting",
        "message": f"job {record.job_id} is about to be submitted",
        **identity(record),
        "upgradedFrom": identity(record.upgraded_from) if record.upgraded_from else None,
        "submittedAt": None,
        "finishedAt": None,
        "progress": None,
    }
