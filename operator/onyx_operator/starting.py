"""Starts all that an operator does: Secrets of the installation, controllers, watches, webhook."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

from kubernetes import client as kubernetes_client

from onyx_operator.admission.server import Check
from onyx_operator.admission.serving import serve_webhook
from onyx_operator.clusters.check import check
from onyx_operator.clusters.controller import Clusters
from onyx_operator.clusters.pool import CLUSTER_LABEL
from onyx_operator.clusters.resources import STATEFUL_SETS
from onyx_operator.context import Operator
from onyx_operator.informers.watches import Watches
from onyx_operator.installation.installation import Installation
from onyx_operator.jobs.controller import Jobs
from onyx_operator.kube import CLUSTERS, JOBS
from onyx_operator.parts import run_forever


async def start(
    operator: Operator, configuration: kubernetes_client.Configuration, opened: AsyncExitStack
) -> None:
    """Everything that runs; ended in the reverse order."""
    run_forever(operator, opened, "the event loop", operator.liveness.beat())
    installation = Installation(operator.kube, operator.settings.installation, operator.metrics)
    await installation.begin()
    jobs = Jobs(operator)
    clusters = Clusters(operator, jobs.views.deaths, jobs.views.usage, jobs.views.trouble)
    checks: dict[str, Check] = {
        JOBS.kind: jobs.checks.check,
        CLUSTERS.kind: partial(check, operator),
    }
    await serve_webhook(operator, checks, opened)
    watches = Watches(
        operator.settings,
        configuration,
        operator.kube,
        operator.metrics,
        (operator.clusters, operator.jobs),
        [(STATEFUL_SETS, CLUSTER_LABEL, clusters.workers_changed)],
    )
    parts = {
        "the installation": installation.follow(),
        "OnyxJobs": jobs.run(),
        "OnyxClusters": clusters.run(),
        "the watches": watches.run(),
    }
    for name, part in parts.items():
        run_forever(operator, opened, name, part)
