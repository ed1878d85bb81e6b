"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec.structs import replace

from onyx.base.path_names import path_name
from onyx.cli.command_line import Argument, Option
from onyx.settings import ClientSettings, Settings


def job_id(text: str | None) -> str | None:
    """The id of a job as it was given on the command line.

    Raises:
        UserError: no job can have it.
    """
    return None if text is None else path_name(text, "the id of a job")


def with_token(settings: Settings, file: str | None, variable: str | None) -> Settings:
    """The settings of a client that takes its token from there, if the command line says where."""
    if file is None and variable is None:
        return settings
    return replace(settings, client=ClientSettings(file or "", variable or ""))


JobArgument = Annotated[
    str, Argument("The job: its id or the beginning of that, or its name.", check=job_id)
]
ZooKeeperOption = Annotated[
    str | None,
    Option("--zookeeper", "Address of ZooKeeper, host:port[,host:port].", metavar="ADDR"),
]
LogOption = Annotated[
    Path | None,
    Option("--log", "Folder of a log on this machine, instead of ZooKeeper.", metavar="FOLDER"),
]
TenancyOption = Annotated[
    str | None, Option("--tenancy", "Separates clusters that share a log's place.")
]
TokenFileOption = Annotated[
    str | None,
    Option("--token-file", "File with the token to show to workers.", metavar="FILE"),
]
TokenEnvOption = Annotated[
    str | None,
    Option("--token-env", "Variable with the token to show to workers.", metavar="NAME"),
]
ModulesOption = Annotated[
    list[str] | None,
    Option("--modules", "Modules or packages whose functions jobs may name; repeat or use commas."),
]


class EngineChoice(StrEnum):
    """What runs a job, as a choice of the command line."""

    PEERS = "peers"
    SPARK = "spark"


EngineOption = Annotated[
    EngineChoice | None,
    Option("--engine", "What runs the job, whatever its file says."),
]
JsonOption = Annotated[bool, Option("--json", "Print JSON for programs.")]
WaitOption = Annotated[bool, Option("--wait", "Wait until the job has ended.")]
