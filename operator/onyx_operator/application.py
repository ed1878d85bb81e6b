"""The operator as one application: watches, reconcilers, webhook and pages, started and ended.

Each part runs for itself. The webhook answers whatever the watches do, and a watch that ends takes
nothing along (see `informers.cell`). A part that must not end and does is reported by `/livez`, so
that the kubelet starts the operator again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack

from kubernetes import client as kubernetes_client

from onyx.log.interface import ClientLog
from onyx.log.zookeeper.client_log import ZooKeeperClientLog
from onyx.settings import Settings
from onyx_operator.kube import MANAGER, cluster_configuration
from onyx_operator.opening import open_operator
from onyx_operator.settings import OperatorSettings
from onyx_operator.signals import stop_signals
from onyx_operator.starting import start


async def run(
    settings: OperatorSettings,
    configuration: kubernetes_client.Configuration | None = None,
    stop: asyncio.Event | None = None,
    connect: Callable[[Settings], ClientLog] = ZooKeeperClientLog,
) -> None:
    """Run the operator until it is stopped, by `stop`, SIGTERM or SIGINT.

    Args:
        settings: all settings.
        configuration: where the API server is; by default that of the pod or of `KUBECONFIG`.
        stop: set it to end the operator in an orderly way.
        connect: opens the log of a cluster.

    Raises:
        Unavailable: there is no API server to talk to, or a port is taken.
        SettingsError: the webhook's certificate cannot be used.
    """
    # kopf asks for the user's name, which a container with a bare uid does not have.
    os.environ.setdefault("LOGNAME", MANAGER)
    configuration = configuration or cluster_configuration()
    stop = stop or asyncio.Event()
    with stop_signals(stop):
        async with AsyncExitStack() as opened:
            operator = open_operator(settings, configuration, connect, opened)
            stopping = asyncio.create_task(stop.wait())
            opened.callback(stopping.cancel)
            starting = asyncio.create_task(start(operator, configuration, opened))
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                operator.liveness.started()
            else:
                starting.cancel()
                await asyncio.wait({starting})
            await stopping
