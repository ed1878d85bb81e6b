"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from onyx.path_names import path_name


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
