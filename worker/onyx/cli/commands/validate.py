"""`onyx validate`, and how a job file is read; imports nothing of the engine that runs jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer

from onyx.cli.job_file import Engine, EngineOption, FileArgument, read_file
from onyx.cli.options import JsonOption, ModulesOption, import_from, settings
from onyx.errors import ManifestError, NameNotRegistered, Problem
from onyx.model.functions import function_names
from onyx.model.job import Job
from onyx.model.notices import notices
from onyx.model.parsing.cluster import is_cluster, parse_cluster_manifest
from onyx.model.parsing.job import parse_manifest
from onyx.model.parsing.text import ambiguities
from onyx.resolve import Resolver
from onyx.submission.plugin_options import wrong_options


def validate(
    file: FileArgument,
    modules: ModulesOption = None,
    engine: EngineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a file with a job, or with an OnyxCluster; prints every problem with its place. Needs
    no server.

    With --modules it also imports these modules and looks up the functions that the job names. They
    are looked for beside the job file too.
    """
    import_from(file.parent, Path())
    try:
        name, summary, noticed = _checked(file, modules, engine)
        warnings = [*ambiguities(read_file(file), str(file)), *noticed]
    except ManifestError as error:
        if not as_json:
            raise
        found = [msgspec.to_builtins(problem) for problem in error.problems]
        print(json.dumps({"valid": False, "problems": found}))
        raise typer.Exit(2) from None
    if as_json:
        found = [msgspec.to_builtins(warning) for warning in warnings]
        print(json.dumps({"valid": True, "name": name, "problems": [], "warnings": found}))
    else:
        for warning in warnings:
            typer.echo(f"warning: {warning}", err=True)
        print(f"{file}: {summary}")


def _checked(
    file: Path, modules: list[str] | None, engine: Engine | None
) -> tuple[str, str, tuple[Problem, ...]]:
    """Name of what a file holds, what to say of it, and warnings; raises ManifestError when it is
    wrong."""
    text = read_file(file)
    if is_cluster(text):
        cluster = parse_cluster_manifest(text, str(file))
        return cluster.name, f"cluster {cluster.name} is valid", ()
    job = parse_manifest(text, str(file), engine=engine)
    problems = [
        *wrong_options(job),
        *(unresolved(job, settings(modules=modules).modules) if modules else ()),
    ]
    if problems:
        raise ManifestError(problems)
    tasks, edges = len(job.catalog), len(job.workflow)
    summary = f"job {job.name} is valid ({tasks} tasks, {edges} edges)"
    return job.name, summary, notices(job)


def unresolved(job: Job, modules: Sequence[str]) -> list[Problem]:
    """The names of functions in a job that are none of these modules', each with its place."""
    resolver = Resolver(modules)
    problems = []
    for path, name in function_names(job):
        try:
            resolver.resolve(name)
        except NameNotRegistered as error:
            problems.append(Problem(path, str(error)))
    return problems
