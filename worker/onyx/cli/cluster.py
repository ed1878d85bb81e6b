"""`onyx worker`: the processes of a cluster."""

from __future__ import annotations

import dataclasses
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
from onyx.cli.supervisor import Supervisor
from onyx.cli.worker import Worker
from onyx.telemetry.logs import configure

PeersOption = Annotated[int, typer.Option("--peers", help="Virtual peers of each process.", min=1)]
ProcessesOption = Annotated[int, typer.Option("--processes", help="Worker processes.", min=1)]
MetricsOption = Annotated[
    int | None,
    typer.Option("--metrics-port", help="Prometheus endpoint; 0 takes a free port.", min=0),
]


def add_to(app: typer.Typer) -> None:
    app.command("worker")(run_worker)


def run_worker(
    peers: PeersOption = 1,
    processes: ProcessesOption = 1,
    modules: ModulesOption = None,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    metrics_port: MetricsOption = None,
) -> None:
    """Run a worker, in one process or several, until SIGTERM.

    On SIGTERM or Ctrl-C it leaves the cluster in an orderly way and others take over its tasks.
    Modules are looked for in the current folder too.

    Every setting is also a variable: ONYX_TENANCY_ID, ONYX_ZOOKEEPER_ADDRESS, ONYX_MODULES, ...
    """
    import_from(Path())
    found = settings(zookeeper, tenancy, modules)
    if metrics_port is not None:
        telemetry = dataclasses.replace(found.telemetry, metrics_port=metrics_port)
        found = dataclasses.replace(found, telemetry=telemetry)
    configure(found.telemetry.log_level, found.telemetry.log_format)
    stop = stop_signal()
    if processes > 1:
        supervisor = Supervisor(found, [peers] * processes)
        supervisor.start()
        stop.wait()
        supervisor.stop()
        return
    worker = Worker(found)
    worker.start(peers)
    while not stop.wait(0.2):
        if worker.ended:
            raise typer.Exit(1)
    worker.stop()
