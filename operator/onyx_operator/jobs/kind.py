"""How an OnyxJob is reconciled: what is observed, planned, done and said of it."""

from __future__ import annotations

from onyx_operator.jobs.act import Actor
from onyx_operator.jobs.events import news
from onyx_operator.jobs.logs_of_jobs import LogsOfJobs
from onyx_operator.jobs.observe import Observer
from onyx_operator.jobs.observed import Observed
from onyx_operator.jobs.plan import Plan, plan
from onyx_operator.jobs.status import status
from onyx_operator.kube import Object
from onyx_operator.logs.state import Trouble
from onyx_operator.reconciler import Kind

PLANS_MAX = 8
"""Plans in one reconciliation; an edited job needs four."""


def job_kind(observer: Observer, logs: LogsOfJobs, actor: Actor) -> Kind[Observed, Plan]:
    """The kind OnyxJob for a reconciler."""

    async def act(body: Object, seen: Observed, plan: Plan) -> Plan | None:
        view = logs.view(body)
        log = None if isinstance(view, Trouble) else view
        return await actor.act(body, seen.spec, plan, log)

    return Kind(observer.observe, plan, act, status, news, PLANS_MAX)
