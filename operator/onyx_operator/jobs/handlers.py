"""The kopf handlers of OnyxJobs: thin, all decisions are made elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import kopf

from onyx_operator.context import Operator
from onyx_operator.jobs.jobs import Jobs
from onyx_operator.kube import CLUSTERS, JOBS


class _Running:
    """The jobs of the operator, between its start and its end."""

    jobs: Jobs
    task: asyncio.Task[None]


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Add the handlers to kopf's registry."""
    running = _Running()

    @kopf.on.startup(registry=registry, id="jobs-start")
    async def start(**_: Any) -> None:
        running.jobs = Jobs(operator)
        running.task = asyncio.create_task(running.jobs.run(), name="onyx-jobs")
        running.task.add_done_callback(lambda _: operator.liveness.behind("OnyxJobs", True))
        operator.liveness.started()

    @kopf.on.cleanup(registry=registry, id="jobs-stop")
    async def stop(**_: Any) -> None:
        running.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running.task

    @kopf.on.event(JOBS.group, JOBS.version, JOBS.plural, registry=registry, id="jobs")
    async def job(event: Any, **_: Any) -> None:
        running.jobs.job_event(event["object"], gone=event["type"] == "DELETED")

    @kopf.on.event(CLUSTERS.group, CLUSTERS.version, CLUSTERS.plural, registry=registry, id="pools")
    async def cluster(event: Any, **_: Any) -> None:
        running.jobs.cluster_event(event["object"], gone=event["type"] == "DELETED")
