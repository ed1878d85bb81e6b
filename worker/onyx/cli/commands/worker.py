"""`onyx worker`: one process of a cluster or several, under a supervisor.

Also a single one has a supervisor: who else would know how it has ended? It is small, because it
does without the engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from onyx.cli.command_line import Option
from onyx.cli.options import LogPlace, ModulesOption
from onyx.errors import UserError
from onyx.processes.running import run_until
from onyx.processes.supervisor import Supervisor, dealt
from onyx.processes.surroundings import configure_logs, import_from, stop_signal

PeersOption = Annotated[
    int | None,
    Meta(ge=1),
    Option(
        "--peers", "Virtual peers, in all processes; one each if left out.", variable="ONYX_PEERS"
    ),
]
ProcessesOption = Annotated[
    int,
    Meta(ge=1),
    Option("--processes", "Worker processes.", variable="ONYX_PROCESSES"),
]
MetricsOption = Annotated[
    int | None,
    Meta(ge=0),
    Option("--metrics-port", "Prometheus endpoint; 0 takes a free port."),
]


def worker(
    peers: PeersOption = None,
    processes: ProcessesOption = 1,
    modules: ModulesOption = None,
    place: LogPlace = LogPlace(),
    metrics_port: MetricsOption = None,
) -> None:
    """Run a worker, in one process or several, until SIGTERM.

    On SIGTERM or Ctrl-C it leaves the cluster in an orderly way and others take over its tasks.
    Modules are looked for in the current folder too.

    Every setting is also a variable: ONYX_TENANCY_ID, ONYX_ZOOKEEPER_ADDRESS, ONYX_MODULES, ...
    """
    total = processes if peers is None else peers
    if total < processes:
        raise UserError(
            f"{processes} processes cannot share {total} peers, and one without a peer does "
            "nothing: give more --peers, or fewer --processes"
        )
    stop = stop_signal()
    import_from(Path())
    found = place.settings(modules)
    if metrics_port is not None:
        telemetry = replace(found.telemetry, metrics_port=metrics_port)
        found = replace(found, telemetry=telemetry)
    configure_logs(found.telemetry, {"tenancy": found.tenancy_id})
    run_until(stop, Supervisor(found, dealt(total, processes)), found)
