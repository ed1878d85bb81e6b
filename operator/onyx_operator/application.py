"""The operator as one application: kopf with our handlers, the edge to the API server, the pages.

kopf brings the watches and the webhook server. What it would write into objects (annotations with
copies of the spec, its own finalizer) is avoided by registering event handlers only; its peering is
off, because two operators would do the same work twice, which is harmless: every action is
idempotent. Its events from log lines are off too: ours have stable reasons.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

import kopf
from kubernetes import client as kubernetes_client

from onyx.log.interface import ClientLog
from onyx.log.zookeeper import ZooKeeperClientLog
from onyx.settings import Settings
from onyx.telemetry.server import TelemetryServer
from onyx_operator.admission import handlers as admission
from onyx_operator.clusters import handlers as clusters
from onyx_operator.context import Operator
from onyx_operator.jobs import handlers as jobs
from onyx_operator.kube import MANAGER, Kube, cluster_configuration
from onyx_operator.liveness import Liveness
from onyx_operator.metrics import OperatorMetrics
from onyx_operator.settings import OperatorSettings

WATCH_LIFETIME_S = 240
"""A watch is made anew after this, so that one that died silently does not stay dead."""
REQUEST_TIMEOUT_S = 30


async def run(
    settings: OperatorSettings,
    configuration: kubernetes_client.Configuration | None = None,
    stop: asyncio.Event | None = None,
    connect: Callable[[Settings], ClientLog] = ZooKeeperClientLog,
) -> None:
    """Run the operator until it is told to stop (by `stop`, SIGTERM or SIGINT).

    Args:
        settings: all settings.
        configuration: where the API server is; by default that of the pod or of `KUBECONFIG`.
        stop: set it to end the operator in an orderly way.
        connect: opens the log of a cluster.

    Raises:
        Unavailable: there is no API server to talk to, or the port of the pages is taken.
    """
    # kopf asks for the user's name, which a container with a bare uid does not have.
    os.environ.setdefault("LOGNAME", MANAGER)
    configuration = configuration or cluster_configuration()
    metrics = OperatorMetrics()
    kube = Kube(settings.kube, configuration, metrics.api_request)
    liveness = Liveness(settings.server.stalled_after_s)
    operator = Operator(settings, kube, metrics, liveness, connect)
    with contextlib.ExitStack() as opened:
        opened.callback(kube.close)
        pages = TelemetryServer(
            settings.server.host,
            settings.server.port,
            metrics.registry,
            healthy=liveness.alive,
            ready=liveness.ready,
        )
        opened.callback(pages.close)
        beating = asyncio.create_task(liveness.beat())
        opened.callback(beating.cancel)
        await kopf.operator(
            registry=_registry(operator, configuration),
            settings=_kopf_settings(settings),
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            stop_flag=stop,
        )


def _registry(
    operator: Operator, configuration: kubernetes_client.Configuration
) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return _credentials(configuration)

    for kind in (jobs, clusters, admission):
        kind.register(registry, operator)
    return registry


def _credentials(configuration: kubernetes_client.Configuration) -> kopf.ConnectionInfo:
    """What kopf needs to know of the client's configuration; asked again when it is refused."""
    header = configuration.get_api_key_with_prefix("BearerToken")
    header = header or configuration.get_api_key_with_prefix("authorization") or ""
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        username=configuration.username or None,
        password=configuration.password or None,
        token=header.rpartition(" ")[2] or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


class _NoMemory(kopf.DiffBaseStorage):
    """kopf compares each event of an object with its last state, for handlers that we do not have:
    nothing is copied, stored or compared. (Its default makes two deep copies an event.)"""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        return {}

    def fetch(self, *, body: Any) -> Any:
        return None

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        """Nothing is stored in objects."""


def _kopf_settings(settings: OperatorSettings) -> kopf.OperatorSettings:
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.persistence.diffbase_storage = _NoMemory()
    found.scanning.disabled = bool(settings.namespaces)
    found.watching.server_timeout = WATCH_LIFETIME_S
    found.networking.request_timeout = REQUEST_TIMEOUT_S
    return found
