"""The edges of an operator: requests to the API server, what is known of our kinds, the pages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from kubernetes import client as kubernetes_client
from msgspec.structs import replace

from onyx.log.interface import ClientLog
from onyx.settings import Settings
from onyx.submission.plugin_options import wrong_options
from onyx.submission.sql_checks import wrong_sql
from onyx.telemetry.http_server import TelemetryServer
from onyx_operator.authors import Authors
from onyx_operator.context import Operator
from onyx_operator.informers.informer import Informer
from onyx_operator.kube import CLUSTERS, JOBS, Kube
from onyx_operator.liveness import Liveness
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import OperatorSettings
from onyx_operator.tenancies import Tenancies

CHECKS = (wrong_options, wrong_sql)
"""What is checked of a job besides what its manifest says."""


def open_operator(
    settings: OperatorSettings,
    configuration: kubernetes_client.Configuration,
    connect: Callable[[Settings], ClientLog],
    opened: AsyncExitStack,
) -> Operator:
    """An operator that watches nothing yet; what it has open is closed with `opened`."""
    metrics, liveness = OperatorMetrics(), Liveness(settings.server.stalled_after_s)
    kube = Kube(settings.kube, configuration, metrics.api_request)
    opened.callback(kube.close)
    settings = replace(settings, engine=replace(settings.engine, tenancy_owner=kube.mark))
    jobs, clusters = settings.jobs, settings.clusters
    known = Informer(CLUSTERS, clusters.resync_interval_s, liveness, metrics)
    operator = Operator(
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
