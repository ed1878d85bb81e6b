"""The kopf handlers of OnyxJobs: thin, all decisions are made elsewhere."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import kopf

from onyx_operator.context import Operator
from onyx_operator.jobs.jobs import Jobs
from onyx_operator.kube import CLUSTERS, JOBS

logger = logging.getLogger(__name__)


class _Running:
    """The jobs of the operator, between its start and its end."""

    jobs: Jobs
    task: asyncio.Task[None]


def register(registry: kopf.OperatorRegistry, operator: Operator) -> None:
    """Add the handlers to kopf's registry."""
    running = _Running()

    def ended(task: asyncio.Task[None]) -> None:
        """It must not, before the operator does: the kubelet is told to start another one."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("OnyxJobs are not looked after any more", exc_info=error)
            operator.liveness.behind("OnyxJobs", True)

    @kopf.on.startup(registry=registry, id="jobs-start")
    async def start(**_: Any) -> None:
        running.jobs = Jobs(operator)
        running.task = asyncio.create_task(running.jobs.run(), name="onyx-jobs")
        running.task.add_done_callback(ended)
        operator.liveness.started()

    @kopf.on.cleanup(registry=registry, id="jobs-stop")
    async def stop(**_: Any) -> None:
        running.task.cancel()
        await asyncio.wait([running.task])

    @kopf.on.event(JOBS.group, JOBS.version, JOBS.plural, registry=registry, id="jobs")
    async def job(event: Any, **_: Any) -> None:
        running.jobs.job_event(event["object"], gone=event["type"] == "DELETED")

    @kopf.on.event(CLUSTERS.group, CLUSTERS.version, CLUSTERS.plural, registry=registry, id="pools")
    async def cluster(event: Any, **_: Any) -> None:
        running.jobs.cluster_event(event["object"], gone=event["type"] == "DELETED")
