"""`onyx worker`: one process of a cluster, or several under a supervisor."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Annotated

import typer

from onyx.cli.options import (
    ModulesOption,
    TenancyOption,
    ZooKeeperOption,
    import_from,
    settings,
    stop_signal,
)
from onyx.cli.supervisor import STOP_MARGIN_S, Supervisor
from onyx.cli.threads import end_within
from onyx.cli.worker import Worker
from onyx.errors import Unavailable
from onyx.telemetry.logs import configure

PeersOption = Annotated[
    int,
    typer.Option("--peers", envvar="ONYX_PEERS", help="Virtual peers of each process.", min=1),
]
ProcessesOption = Annotated[
    int,
    typer.Option("--processes", envvar="ONYX_PROCESSES", help="Worker processes.", min=1),
]
MetricsOption = Annotated[
    int | None,
    typer.Option("--metrics-port", help="Prometheus endpoint; 0 takes a free port.", min=0),
]
SocketOption = Annotated[int | None, typer.Option("--telemetry-socket", hidden=True)]


def run_worker(
    peers: PeersOption = 1,
    processes: ProcessesOption = 1,
    modules: ModulesOption = None,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    metrics_port: MetricsOption = None,
    telemetry_socket: SocketOption = None,
) -> None:
    """Run a worker, in one process or several, until SIGTERM.

    On SIGTERM or Ctrl-C it leaves the cluster in an orderly way and others take over its tasks.
    Modules are looked for in the current folder too.

    Every setting is also a variable: ONYX_TENANCY_ID, ONYX_ZOOKEEPER_ADDRESS, ONYX_MODULES, ...
    """
    stop = stop_signal()
    import_from(Path())
    found = settings(zookeeper, tenancy, modules)
    if metrics_port is not None:
        telemetry = dataclasses.replace(found.telemetry, metrics_port=metrics_port)
        found = dataclasses.replace(found, telemetry=telemetry)
    fields = {"tenancy": found.tenancy_id}
    configure(found.telemetry.log_level, found.telemetry.log_format, fields=fields)
    running: Worker | Supervisor
    if processes > 1:
        running = Supervisor(found, [peers] * processes)
        running.start()
    else:
        given = None if telemetry_socket is None else socket.socket(fileno=telemetry_socket)
        running = Worker(found, given)
        running.start(peers)
    while running.failure is None and not stop.wait(0.2):
        pass
    failure = running.failure
    if failure is not None:
        end_within(found.leave_timeout_s + STOP_MARGIN_S)
    left = running.stop()
    if failure is not None:
        raise failure
    if not left:
        raise Unavailable(
            f"the worker could not leave the cluster within {found.leave_timeout_s:g} s; others "
            "take over its tasks when its session has expired"
        )
