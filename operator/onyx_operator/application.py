"""The operator as one application: its edges opened, its parts started, run and ended.

Several may run. All watch, and answer reviews; the one that has the Lease reconciles besides.

Each part runs for itself. The webhook answers whatever the watches do, and a watch that ends takes
nothing along (see `informers.cell`). A part that must not end and does is reported by `/livez`, so
that the kubelet starts the operator again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from msgspec.structs import replace

from onyx.log.interface import ClientLog
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.settings import Settings
from onyx.submission.job_checks import wrong_options, wrong_sql
from onyx.telemetry.http_server import TelemetryServer
from onyx_operator.admission.server import Check, serve_webhook
from onyx_operator.api_client import Configuration
from onyx_operator.authors import Authors
from onyx_operator.clusters.check import check
from onyx_operator.clusters.controller import Clusters
from onyx_operator.clusters.observe import worker_pages
from onyx_operator.clusters.pool import CLUSTER_LABEL
from onyx_operator.clusters.resources import STATEFUL_SETS
from onyx_operator.context import OperatorProcess
from onyx_operator.informers.informer import Informer
from onyx_operator.informers.watches import NamespaceWatches
from onyx_operator.installation.belongings import Belongings
from onyx_operator.installation.installation import InstallationSecrets
from onyx_operator.jobs.controller import Jobs
from onyx_operator.kube import CLUSTERS, JOBS, MANAGER, Kube
from onyx_operator.lease import OperatorLease
from onyx_operator.liveness import OperatorLiveness
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import OperatorSettings
from onyx_operator.tenancies import Tenancies

logger = logging.getLogger(__name__)
CHECKS = (wrong_options, wrong_sql)
"""What is checked of a job besides what its manifest says."""


async def run(
    settings: OperatorSettings,
    configuration: Configuration,
    stop: asyncio.Event | None = None,
    connect: Callable[[Settings], ClientLog] = ZooKeeperClientLog,
) -> None:
    """Run the operator until it is stopped, by `stop`, SIGTERM or SIGINT.

    Args:
        settings: all settings.
        configuration: where the API server is.
        stop: set it to end the operator in an orderly way.
        connect: opens the log of a cluster.

    Raises:
        Unavailable: there is no API server to talk to, or a port is taken.
        SettingsError: the webhook's certificate cannot be used.
    """
    # kopf asks for the user's name, which a container with a bare uid does not have.
    os.environ.setdefault("LOGNAME", MANAGER)
    stop = stop or asyncio.Event()
    with _stop_signals(stop):
        async with AsyncExitStack() as opened:
            operator = _open_operator(settings, configuration, connect, opened)
            stopping = asyncio.create_task(stop.wait())
            opened.callback(stopping.cancel)
            starting = asyncio.create_task(_start(operator, configuration, opened, stop))
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                operator.liveness.started()
            else:
                starting.cancel()
                await asyncio.wait({starting})
            await stopping


def _open_operator(
    settings: OperatorSettings,
    configuration: Configuration,
    connect: Callable[[Settings], ClientLog],
    opened: AsyncExitStack,
) -> OperatorProcess:
    """An operator that watches nothing yet; what it has open is closed with `opened`."""
    metrics, liveness = OperatorMetrics(), OperatorLiveness(settings.server.stalled_after_s)
    kube = Kube(settings.kube, configuration, metrics.api_request)
    opened.callback(kube.close)
    settings = replace(settings, engine=replace(settings.engine, tenancy_owner=kube.mark))
    jobs, clusters = settings.jobs, settings.clusters
    known = Informer(CLUSTERS, clusters.resync_interval_s, liveness, metrics)
    operator = OperatorProcess(
        settings,
        kube,
        metrics,
        liveness,
        Informer(JOBS, jobs.resync_interval_s, liveness, metrics),
        known,
        Tenancies(settings, lambda: [body for _, body in known.store.items()]),
        connect,
        Authors(settings.webhook.marks_authors, bool(settings.webhook.client_ca_file)),
        CHECKS,
    )
    pages = TelemetryServer(
        settings.server.host,
        settings.server.port,
        metrics.registry,
        healthy=liveness.alive,
        ready=liveness.ready,
    )
    opened.callback(pages.close)
    return operator


async def _start(
    operator: OperatorProcess,
    configuration: Configuration,
    opened: AsyncExitStack,
    stop: asyncio.Event,
) -> None:
    """Start all that the operator does: Secrets of the installation, webhook, watches, and when it
    is its turn, controllers. It ends in the reverse order."""
    _run_forever(operator, opened, "the event loop", operator.liveness.beat())
    installation = InstallationSecrets(
        operator.kube, operator.settings.installation, operator.metrics
    )
    await installation.begin()
    jobs = Jobs(operator, partial(worker_pages, operator.kube))
    clusters = Clusters(operator, jobs.views.deaths, jobs.views.usage, jobs.views.trouble)
    jobs.turned = clusters.logs_turned
    checks: dict[str, Check] = {
        JOBS.kind: jobs.check,
        CLUSTERS.kind: partial(check, operator),
    }
    await serve_webhook(operator, checks, opened)
    watches = NamespaceWatches(
        operator.settings,
        configuration,
        operator.kube,
        operator.metrics,
        (operator.clusters, operator.jobs),
        [(STATEFUL_SETS, CLUSTER_LABEL, clusters.workers_changed)],
    )
    parts = {
        "the installation": installation.follow(),
        "what ends with the namespace": Belongings(
            operator.kube, operator.settings.installation
        ).follow(),
        "the watches": watches.run(),
        "the lease": _work(operator, opened, jobs, clusters, stop),
    }
    for name, part in parts.items():
        _run_forever(operator, opened, name, part)


async def _work(
    operator: OperatorProcess,
    opened: AsyncExitStack,
    jobs: Jobs,
    clusters: Clusters,
    stop: asyncio.Event,
) -> None:
    """Reconcile from when the Lease is ours; when another operator has it, this one ends, and
    starts again as one that waits."""
    lease = OperatorLease(operator.kube, operator.settings.lease)
    await lease.taken()
    try:
        logger.info("%s works", lease.holder)
        operator.metrics.working()
        _run_forever(operator, opened, "OnyxJobs", jobs.run())
        _run_forever(operator, opened, "OnyxClusters", clusters.run())
        logger.warning("%s works now: this operator ends", await lease.lost())
        stop.set()
        await asyncio.get_running_loop().create_future()
    finally:
        await lease.give_back()


def _run_forever(
    operator: OperatorProcess, opened: AsyncExitStack, name: str, part: Coroutine[Any, Any, None]
) -> None:
    """Run a part that must not end before the operator does; it ends when `opened` does."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            logger.error("%s ended: a bug in the operator", name, exc_info=task.exception())
            operator.liveness.behind(name, True)

    task = asyncio.create_task(part, name=name)
    task.add_done_callback(ended)
    opened.push_async_callback(_end, task)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


@contextlib.contextmanager
def _stop_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`, where signals arrive: on the main thread."""
    loop, ours = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    for each in ours:
        loop.add_signal_handler(each, stop.set)
    try:
        yield
    finally:
        for each in ours:
            loop.remove_signal_handler(each)
