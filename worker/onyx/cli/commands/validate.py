"""`onyx validate`, and how a job file is read; imports nothing of the engine that runs jobs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import typer

from onyx.cli.functions import check_those_here
from onyx.cli.job_file import (
    Engine,
    EngineOption,
    FileArgument,
    checked_job,
    read_file,
    warn,
)
from onyx.cli.options import JsonOption, ModulesOption, import_from
from onyx.errors import ManifestError, Problem
from onyx.model.parsing.cluster import is_cluster, parse_cluster_manifest
from onyx.model.parsing.text import ambiguities, located


def validate(
    file: FileArgument,
    modules: ModulesOption = None,
    engine: EngineOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a file with a job, or with an OnyxCluster; prints every problem with its key path.
    Needs no server.

    It imports the modules that the job names, or only those of --modules, and looks whether their
    functions are there and can be called as Onyx calls them. Modules are looked for beside the job
    file and in the current folder; of those that are in neither it warns.
    """
    import_from(file.parent, Path())
    try:
        name, summary, warnings = _checked(file, modules, engine)
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
        warn(warnings)
        print(f"{file}: {summary}")


def _checked(
    file: Path, modules: list[str] | None, engine: Engine | None
) -> tuple[str, str, list[Problem]]:
    """Name of what a file holds, what to say of it, and warnings; raises ManifestError when it is
    wrong."""
    text = read_file(file)
    if is_cluster(text):
        cluster = parse_cluster_manifest(text, str(file))
        summary = f"cluster {cluster.name} is valid"
        return cluster.name, summary, ambiguities(text, str(file))
    job, warnings = checked_job(file, engine=engine)
    absent = check_those_here(job, file, modules)
    tasks, edges = len(job.catalog), len(job.workflow)
    summary = f"job {job.name} is valid ({tasks} tasks, {edges} edges)"
    return job.name, summary, [*located(absent, text, str(file)), *warnings]
