"""Options that several commands share."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from onyx.base.on_demand import OnDemand
from onyx.base.path_names import path_name
from onyx.cli.command_line import Argument, Option
from onyx.errors import UserError
from onyx.processes.surroundings import is_set, settings
from onyx.settings import ClientSettings, Settings
from onyx.storage.opening import absolute

_ENDING = OnDemand[str]("onyx.log.local.store:ENDING")
READING_PATIENCE_S = 5.0
"""For a log to answer who only reads it."""


def job_id(text: str | None) -> str | None:
    """The id of a job as it was given on the command line.

    Raises:
        UserError: no job can have it.
    """
    return None if text is None else path_name(text, "the id of a job")


_JOB = Argument("The job: its id or the beginning of that, or its name.", check=job_id)
JobArgument = Annotated[str, _JOB]
JobOrNoneArgument = Annotated[str | None, _JOB]


def saved_place(text: str, found: Settings) -> str:
    """Where backups or savepoints are, as it is opened: paths count from ONYX_DATA_DIR, as all do.

    Raises:
        UserError: none is given.
    """
    if not text:
        raise UserError("the place is empty: name a folder, or s3://bucket/prefix")
    return absolute(text, os.path.abspath(found.data_dir))


FromOption = Annotated[
    str | None,
    Option(
        "--from",
        "A savepoint with which the job begins: folder/NAME, or s3://bucket/prefix/NAME. Same as "
        "spec.upgrade.savepoint.",
        metavar="PLACE",
    ),
]
ZooKeeperOption = Annotated[
    str | None,
    Option("--zookeeper", "Address of ZooKeeper, host:port[,host:port].", metavar="ADDR"),
]


def impatient(found: Settings) -> Settings:
    """These settings, with less patience for a log, unless variables say how much."""
    if is_set("zookeeper_connect_timeout_s"):
        return found
    return replace(found, zookeeper=replace(found.zookeeper, connect_timeout_s=READING_PATIENCE_S))


class LogPlace(msgspec.Struct, frozen=True):
    """Where the log of a cluster is, as far as the command line says it."""

    zookeeper: ZooKeeperOption = None
    log_folder: Annotated[
        Path | None,
        Option("--log", "Folder of a log on this machine, instead of ZooKeeper.", metavar="FOLDER"),
    ] = None
    tenancy: Annotated[
        str | None, Option("--tenancy", "Separates clusters that share a log's place.")
    ] = None

    def settings(self, modules: list[str] | None = None) -> Settings:
        """What leads there; variables say the rest."""
        return settings(self.zookeeper, self.tenancy, modules, self.log_folder)

    def to_read(self) -> Settings:
        """What leads there, for a command that only reads: nobody waits long to hear that there is
        no cluster, or that it is elsewhere. Of a log in a folder it is the one tenancy that is
        there, if nobody says which."""
        found = impatient(self.settings())
        if not found.log.folder or self.tenancy is not None or is_set("tenancy_id"):
            return found
        there = [each.stem for each in Path(found.log.folder).glob(f"*{_ENDING.load()}")]
        if len(there) != 1 or there[0] == found.tenancy_id:
            return found
        print(f"of tenancy {there[0]}, the only one in {found.log.folder}", file=sys.stderr)
        return found.of(there[0])


class TokenPlace(msgspec.Struct, frozen=True):
    """Where the token is that is shown to workers, as far as the command line says it."""

    token_file: Annotated[
        str | None,
        Option("--token-file", "File with the token to show to workers.", metavar="FILE"),
    ] = None
    token_env: Annotated[
        str | None,
        Option("--token-env", "Variable with the token to show to workers.", metavar="NAME"),
    ] = None

    def of(self, found: Settings) -> Settings:
        """These settings, of a client that takes its token from there."""
        if self == TokenPlace():
            return found
        return replace(found, client=ClientSettings(self.token_file or "", self.token_env or ""))


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
