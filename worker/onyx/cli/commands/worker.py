"""`onyx worker`: one process of a cluster or several, under a supervisor.

Also a single one has a supervisor: who else would know how it has ended? It is small, because it
does without the engine.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from onyx.cli.exit_codes import ExitCode, exit_code_of
from onyx.cli.options import (
    ModulesOption,
    TenancyOption,
    ZooKeeperOption,
    configure_logs,
    import_from,
    settings,
    stop_signal,
)
from onyx.cli.processes.running import open_worker, run_until
from onyx.cli.processes.supervisor import Supervisor
from onyx.errors import OnyxError
from onyx.recorder import Recorder
from onyx.seams import SystemClock

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
HttpSocketOption = Annotated[int | None, typer.Option("--http-socket", hidden=True)]
RecorderOption = Annotated[int | None, typer.Option("--recorder", hidden=True)]


def worker(
    peers: PeersOption = 1,
    processes: ProcessesOption = 1,
    modules: ModulesOption = None,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    metrics_port: MetricsOption = None,
    telemetry_socket: SocketOption = None,
    http_socket: HttpSocketOption = None,
    recorder: RecorderOption = None,
) -> None:
    """Run a worker, in one process or several, until SIGTERM.

    On SIGTERM or Ctrl-C it leaves the cluster in an orderly way and others take over its tasks.
    Modules are looked for in the current folder too.

    Every setting is also a variable: ONYX_TENANCY_ID, ONYX_ZOOKEEPER_ADDRESS, ONYX_MODULES, ...
    """
    stop = stop_signal()
    recorded = None if recorder is None else Recorder(recorder, SystemClock())
    code = ExitCode.FAILURE
    try:
        import_from(Path())
        found = settings(zookeeper, tenancy, modules)
        if metrics_port is not None:
            telemetry = dataclasses.replace(found.telemetry, metrics_port=metrics_port)
            found = dataclasses.replace(found, telemetry=telemetry)
        fields = {"tenancy": found.tenancy_id}
        configure_logs(found.telemetry, fields)
        if recorded is None:
            run_until(stop, Supervisor(found, [peers] * processes), found)
        else:
            opened = open_worker(found, peers, recorded, telemetry_socket, http_socket)
            run_until(stop, opened, found)
        code = ExitCode.SUCCESS
    except OnyxError as error:
        code = exit_code_of(error)
        raise
    finally:
        if recorded is not None:
            recorded.ends(code)
