"""The job file that `onyx run`, `validate` and `submit` read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from onyx.errors import ManifestError, Problem
from onyx.model.job import Job
from onyx.model.parsing.job import parse_manifest

FileArgument = Annotated[Path, typer.Argument(help="Job file (an OnyxJob manifest).")]


def read_file(path: Path) -> bytes:
    """The content of a manifest file.

    Raises:
        ManifestError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"the file cannot be read: {error.strerror}"
        raise ManifestError([Problem(str(path), message)]) from error


class Engine(StrEnum):
    """What runs a job, as a choice of the command line."""

    PEERS = "peers"
    SPARK = "spark"


EngineOption = Annotated[
    Engine | None,
    typer.Option("--engine", help="What runs the job, whatever its file says."),
]


def read_job(path: Path, upgrades: str | None = None, engine: Engine | None = None) -> Job:
    """Parse a manifest file.

    Args:
        path: of the file.
        upgrades: id of the old job that it upgrades.
        engine: what is to run it, whatever the file says.

    Raises:
        ManifestError: it cannot be read or is not valid.
    """
    return parse_manifest(read_file(path), str(path), upgrades, engine)
