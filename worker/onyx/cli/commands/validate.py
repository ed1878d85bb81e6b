"""`onyx validate`, and how a job file is read; imports nothing of the engine that runs jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from onyx.base.on_demand import OnDemand
from onyx.cli.command_line import Option
from onyx.cli.functions import check_those_here
from onyx.cli.job_file import (
    FileArgument,
    checked_job,
    read_file,
    warn,
)
from onyx.cli.options import EngineChoice, EngineOption, JsonOption, ModulesOption
from onyx.errors import ManifestError, Problem
from onyx.model.canonical import explained
from onyx.model.manifest import CLUSTER_KIND
from onyx.model.parsing.job import parse_file
from onyx.model.parsing.text import ambiguities, kind_of, located, read_text
from onyx.model.parsing.writing import as_yaml
from onyx.model.report import Report
from onyx.processes import surroundings
from onyx.processes.surroundings import import_from
from onyx.replica.needs import peers_needed
from onyx.submission.here import not_here
from onyx.submission.key_types import keys_in_vain

if TYPE_CHECKING:
    from onyx.model.cluster import Cluster

ExplainOption = Annotated[
    bool, Option("--explain", "Print the job with all that the file leaves out.")
]
PARSE_CLUSTER = OnDemand[Callable[[bytes, str], "Cluster"]](
    "onyx.model.parsing.cluster:parse_cluster_manifest"
)


def validate(
    file: FileArgument,
    modules: ModulesOption = None,
    engine: EngineOption = None,
    as_json: JsonOption = False,
    explain: ExplainOption = False,
) -> None:
    """Check a file with a job, or with an OnyxCluster; prints every problem with its key path.
    Needs no server.

    It imports the modules that the job names, or only those of --modules, and looks whether their
    functions are there and can be called as Onyx calls them. Modules are looked for beside the job
    file and in the current folder; of those that are in neither it warns. So it does of what `onyx
    run` would refuse here: packages that are not installed, paths that match no file, outputs where
    parts of another job lie.

    With --explain it prints the job with all that it leaves out filled in: a file that means the
    same.
    """
    import_from(file.parent, Path())
    try:
        found = _checked(file, modules, engine, explain)
    except ManifestError as error:
        if not as_json:
            raise
        problems = [msgspec.to_builtins(problem) for problem in error.problems]
        print(json.dumps({"valid": False, "problems": problems}))
        sys.exit(2)
    if as_json:
        warnings = [msgspec.to_builtins(warning) for warning in found.warnings]
        said = {"name": found.name, "problems": [], "warnings": warnings, **found.more}
        said |= {"manifest": found.manifest} if explain else {}
        print(json.dumps({"valid": True, **said}))
    elif explain:
        warn(found.warnings)
        print(as_yaml(found.manifest), end="")
    else:
        warn(found.warnings)
        print(f"{file}: {found.summary}")


class _Valid(msgspec.Struct, frozen=True):
    """What there is to say of a file that is valid."""

    name: str
    summary: str
    warnings: list[Problem]
    manifest: Mapping[str, Any]
    """All of it, with what the file leaves out, if that is wanted."""
    more: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further fields for programs."""


def _checked(
    file: Path, modules: list[str] | None, engine: EngineChoice | None, explain: bool
) -> _Valid:
    """Look at everything in a file; raises ManifestError when it is wrong. `explain`: the manifest
    is wanted."""
    text, source = read_file(file), str(file)
    if kind_of(text) == CLUSTER_KIND:
        cluster = PARSE_CLUSTER.load()(text, source)
        summary = f"cluster {cluster.name} is valid"
        value, _ = read_text(text, Report())
        return _Valid(cluster.name, summary, ambiguities(text, source), value)
    job, warnings = checked_job(file, engine=engine)
    absent = check_those_here(job, file, modules)
    found = surroundings.settings()
    absent += [*not_here(job, found, file), *keys_in_vain(job, found, runs=False)]
    peers = peers_needed(job)
    tasks, edges, needed = len(job.catalog), len(job.workflow), sum(peers.values())
    asked = "1 peer" if needed == 1 else f"{needed} peers"
    summary = f"job {job.name} is valid ({tasks} tasks, {edges} edges; needs {asked})"
    more = {"peers_needed": needed, "peers_by_task": peers}
    manifest = explained(job, parse_file(text, source, engine=engine)[1]) if explain else {}
    return _Valid(job.name, summary, [*located(absent, text, source), *warnings], manifest, more)
