"""Step 3 for an OnyxJob: carries out a plan, against the API server and against the log.

The order of the actions is the safety (see `jobs.plan`), so the first failure ends the plan.
"""

from __future__ import annotations

from typing import Any, assert_never

from onyx.errors import JobRefused, UserError
from onyx.upgrade.plan import upgrading
from onyx_operator.authors import Authors
from onyx_operator.informers.informer import Store
from onyx_operator.jobs.plan import Action, ControlJob, DeleteObject, JobPlan, Remember, Submit
from onyx_operator.jobs.record import SubmissionRecord, identity
from onyx_operator.jobs.spec import Spec
from onyx_operator.jobs.status import is_warning
from onyx_operator.kube import JOBS, Kube, Object
from onyx_operator.logs.view import LogView
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.owners import owner_of

_EVENTS = {
    "suspend-job": ("Suspending", "job {job} is suspended: it gives its peers to other jobs"),
    "pause-job": ("Pausing", "job {job} comes to rest: its inputs read nothing new"),
    "resume-job": ("Resuming", "job {job} goes on"),
    "drain-job": ("Draining", "job {job} reads nothing new and completes what is pending"),
    "set-options": ("OptionsSet", "tasks of job {job} work with the values of the edited spec"),
    "kill-job": ("Killing", "job {job} is killed"),
}
"""Reason and message of the event that follows a command."""


class Actor:
    """Everything that changes the world for an OnyxJob.

    All methods raise KubeError, NotFound and Conflict of the API server, and Unavailable.
    """

    def __init__(
        self,
        kube: Kube,
        store: Store,
        metrics: OperatorMetrics,
        authors: Authors,
        wait_s: float,
    ) -> None:
        """`wait_s`: before a job that was refused at its submission is planned again."""
        self._authors = authors
        self._kube, self._store, self._metrics = kube, store, metrics
        self._wait_s = wait_s

    async def act(
        self, body: Object, spec: Spec, plan: JobPlan, view: LogView | None
    ) -> JobPlan | None:
        """Carry out a plan. None when that succeeded, else the plan to report."""
        try:
            for action in plan.actions:
                body = await self._carry_out(action, body, spec, view)
        except (UserError, JobRefused) as error:
            return JobPlan((), "Invalid", "Refused", str(error), self._wait_s)
        return None

    async def control(self, body: Object, view: LogView, action: ControlJob, by: str) -> None:
        """Append a command about a job of an object to the log, and report it by an event.
        `by`: whose wish it follows from."""
        command = action.command
        await view.act(command, by)
        self._metrics.log_written(command.NAME)
        reason, message = _EVENTS[command.NAME]
        await self._kube.event(body, reason, message.format(job=command.job))

    async def _carry_out(
        self, action: Action, body: Object, spec: Spec, view: LogView | None
    ) -> Object:
        """The object as it is after the action."""
        match action:
            case Remember(record):
                body = await self._kube.write_status(JOBS, body, _remembered(record))
                self._store.put(body)
            case Submit(job, old):
                assert view is not None
                assert spec.job is not None
                wanted = spec.job if old is None else upgrading(spec.job, old)
                owner, by = owner_of(body, self._kube.mark), self._authors.of_change(body)
                await view.submit(job, wanted, str(owner), by)
                self._metrics.log_written("submit-job")
                section = wanted.upgrade
                begins_with = "" if section is None else section.savepoint or ""
                await self._kube.event(body, "Submitted", _submitted(action, begins_with))
            case ControlJob():
                assert view is not None
                await self.control(body, view, action, self._authors.of_change(body))
            case DeleteObject(phase, message):
                await self._kube.delete(JOBS, spec.namespace, spec.name, spec.uid)
                self._store.drop(body)
                await self._kube.event(body, "Expired", message, warning=is_warning(phase))
            case _:
                assert_never(action)
        return body


def _submitted(action: Submit, savepoint: str) -> str:
    message = f"job {action.job} is in the log"
    if savepoint:
        message += f", begins with savepoint {savepoint}"
    if action.upgrades is not None:
        message += f", upgrades job {action.upgrades}"
    return f"{message}; {action.remarks}" if action.remarks else message


def _remembered(record: SubmissionRecord) -> dict[str, Any]:
    """A record as an intent; times and progress of the previous job go."""
    return {
        "phase": "Pending",
        "reason": "Submitting",
        "message": f"job {record.job_id} is about to be submitted",
        **identity(record),
        "upgradedFrom": identity(record.upgraded_from) if record.upgraded_from else None,
        "savepoint": None,
        "submittedAt": None,
        "finishedAt": None,
        "progress": None,
        "lag": None,
    }
