"""The job file that `onyx run`, `validate`, `plan` and `submit` read, each with the same checks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from onyx.cli.command_line import Argument
from onyx.cli.options import EngineChoice
from onyx.errors import ManifestError, Problem
from onyx.model.job import Job
from onyx.model.notices import notices, unused_declaration
from onyx.model.parsing.job import parse_file
from onyx.model.parsing.text import ambiguities, located
from onyx.submission.job_checks import unchecked_sql, wrong_options, wrong_sql

FileArgument = Annotated[Path, Argument("Job file (an OnyxJob manifest).")]
FilesArgument = Annotated[
    list[Path], Argument("Job files (OnyxJob manifests); all are checked first.")
]


def read_file(path: Path) -> bytes:
    """The content of a manifest file.

    Raises:
        ManifestError: it cannot be read.
    """
    if path.suffix == ".py":
        what = "is a Python file, and no job file"
        how = f"a job that it builds runs with `python {path}`; `onyx init` writes a job file"
        raise ManifestError([Problem(str(path), what, how)])
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"the file cannot be read: {error.strerror}"
        raise ManifestError([Problem(str(path), message)]) from error


def read_job(path: Path, upgrades: str | None = None, engine: EngineChoice | None = None) -> Job:
    """Parse a manifest file; prints a warning for each key that has no effect.

    Args:
        path: of the file.
        upgrades: id of the old job that it upgrades.
        engine: what is to run it, whatever the file says.

    Raises:
        ManifestError: it cannot be read or is not valid, options of plugins included; with every
            problem, each with file and line.
    """
    job, warnings = checked_job(path, upgrades, engine)
    warn(warnings)
    return job


def checked_job(
    path: Path, upgrades: str | None = None, engine: EngineChoice | None = None
) -> tuple[Job, list[Problem]]:
    """The job of a file, with the warnings; arguments as of `read_job`."""
    text, source = read_file(path), str(path)
    job, declared = parse_file(text, source, upgrades, engine)
    refuse((*wrong_options(job), *wrong_sql(job)), path)
    unused = located(
        [*notices(job), *unchecked_sql(job), *unused_declaration(declared)], text, source
    )
    return job, [*ambiguities(text, source), *unused]


def warn(warnings: Sequence[Problem]) -> None:
    """Print warnings, beside what the command prints for programs."""
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def refuse(problems: Sequence[Problem], path: Path) -> None:
    """Raises:
    ManifestError: there are problems; with the file and the line of each.
    """
    if problems:
        raise ManifestError(located(problems, read_file(path), str(path)))


def read_jobs(
    paths: Sequence[Path], upgrades: str | None = None, engine: EngineChoice | None = None
) -> list[Job]:
    """Parse manifest files. Arguments as of `read_job`.

    Raises:
        ManifestError: with the problems of all files.
    """
    jobs, problems = list[Job](), list[Problem]()
    for path in paths:
        try:
            jobs.append(read_job(path, upgrades, engine))
        except ManifestError as error:
            problems += error.problems
    if problems:
        raise ManifestError(problems)
    return jobs
