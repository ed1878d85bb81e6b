"""Options that several commands share, and the settings that they make."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from onyx.path_names import path_name
from onyx.settings import Settings, TelemetrySettings, from_environment
from onyx.telemetry.logs import configure


def job_id(text: str | None) -> str | None:
    """The id of a job as it was given on the command line.

    Raises:
        UserError: no job can have it.
    """
    return None if text is None else path_name(text, "the id of a job")


JobArgument = Annotated[str, typer.Argument(help="Id of the job.", callback=job_id)]
ZooKeeperOption = Annotated[
    str | None,
    typer.Option(
        "--zookeeper", help="Address of ZooKeeper, host:port[,host:port].", metavar="ADDR"
    ),
]
TenancyOption = Annotated[
    str | None, typer.Option("--tenancy", help="Separates clusters that share a ZooKeeper.")
]
ModulesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--modules", help="Modules or packages whose functions jobs may name; repeat or use commas."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")]


def settings(
    zookeeper: str | None = None, tenancy: str | None = None, modules: list[str] | None = None
) -> Settings:
    """Settings from ONYX_* variables, with what was given on the command line on top."""
    found = from_environment(os.environ)
    if zookeeper is not None:
        address = dataclasses.replace(found.zookeeper, address=zookeeper)
        found = dataclasses.replace(found, zookeeper=address)
    if tenancy is not None:
        found = dataclasses.replace(found, tenancy_id=tenancy)
    if modules:
        names = tuple(name for each in modules for name in each.split(",") if name)
        found = dataclasses.replace(found, modules=names)
    return found


def configure_logs(found: TelemetrySettings, fields: Mapping[str, Any] | None = None) -> None:
    """Log as the settings say, each line with these fields.

    Raises:
        SettingsError: they cannot be followed.
    """
    configure(
        found.log_level,
        found.log_format,
        fields=fields,
        file=found.log_file,
        config=found.log_config,
    )


def import_from(*folders: Path) -> None:
    """Let modules be found in these folders too, first of all in the first: a console script, other
    than `python -m`, does not look where the user is."""
    sys.path[:0] = [str(folder.resolve()) for folder in folders]


def stop_signal() -> threading.Event:
    """An event that SIGTERM and SIGINT set, from now on; a second signal changes nothing."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
