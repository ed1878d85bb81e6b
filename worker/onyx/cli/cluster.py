"""`onyx worker` and `onyx zookeeper`: the processes of a cluster."""

from __future__ import annotations

import dataclasses
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from onyx.cli.options import (
    ModulesOption,
    TenancyOption,
    ZooKeeperOption,
    import_from,
    settings,
)
from onyx.cli.supervisor import Supervisor
from onyx.cli.worker import Worker
from onyx.log.server import ZooKeeperServer
from onyx.telemetry.logs import configure

PeersOption = Annotated[int, typer.Option("--peers", help="Virtual peers of each process.", min=1)]
ProcessesOption = Annotated[int, typer.Option("--processes", help="Worker processes.", min=1)]
MetricsOption = Annotated[
    int | None,
    typer.Option("--metrics-port", help="Prometheus endpoint; 0 takes a free port.", min=0),
]


def add_to(app: typer.Typer) -> None:
    app.command("worker")(run_worker)
    app.command("zookeeper")(run_zookeeper)


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
    stop = _stop_signal()
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


def run_zookeeper(
    port: Annotated[int, typer.Option("--port", help="Port to listen on.")] = 2181,
    data: Annotated[Path, typer.Option("--data", help="Folder for its data.")] = Path(
        ".onyx/zookeeper"
    ),
) -> None:
    """Run a ZooKeeper server for a laptop or tests.

    It is the real server, started from the jars inside the PySpark package.
    """
    stop = _stop_signal()
    with ZooKeeperServer(data, port) as server:
        print(f"ZooKeeper serves at {server.address}, data in {data}", flush=True)
        stop.wait()


def _stop_signal() -> threading.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
