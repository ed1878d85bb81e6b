"""`onyx init`: a project that runs at once, to begin with: the files of a folder of `projects`.
`NAME` in them is the name of the job, and `MODULE` the module beside it.

They are text to this package and not Python, so that nothing imports or checks them before they
have their names.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from onyx.cli.command_line import Argument
from onyx.errors import UserError
from onyx.model.names import as_job_name
from onyx.submission.job_schema import job_schema

Kind = Literal["job", "windows", "requests", "kafka", "spark", "plugin"]
KindArgument = Annotated[Kind, Argument("What it is to be.")]
FolderArgument = Annotated[Path, Argument("Where; it is made if it is not there.")]
SCHEMA_FILE = "job.schema.json"
"""Job files of projects name it in their first lines."""
_SUFFIX = ".txt"


def init(kind: KindArgument = "job", folder: FolderArgument = Path()) -> None:
    """Write a project: a job of functions, with windows, that answers requests, between topics of
    Kafka, or with Spark; or a plugin. Each has tests, a page that says how to run it and what
    it needs, and a schema by which editors complete keys.

    The job and its module are named after the folder. Files that are there are not touched.
    """
    for path in write_project(kind, folder):
        print(f"wrote {path}")
    where = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    print(f"now: {where}onyx run job.yaml")


def write_project(kind: str, folder: Path) -> list[Path]:
    """Write the files of a project; the folder is made if it is not there.

    Args:
        kind: `job`, `windows`, ...: the name of a folder of `projects`.
        folder: after which the job and the module are called.

    Raises:
        UserError: one of the files is there already, or a folder cannot be written.
    """
    name = as_job_name(folder.resolve().name) or "job"
    files = {folder / path: text for path, text in project(kind, name).items()}
    files[folder / SCHEMA_FILE] = json.dumps(job_schema())
    there = [path for path in files if path.exists()]
    if there:
        raise UserError(f"{there[0]} is there already, so nothing was written: name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    return list(files)


def project(kind: str, name: str) -> dict[str, str]:
    """The files of a project by their names, for a job of this name."""
    module = module_name(name)

    def named(text: str) -> str:
        return text.replace("MODULE", module).replace("NAME", name)

    found = resources.files("onyx.cli").joinpath("projects", kind).iterdir()
    return {
        named(file.name.removesuffix(_SUFFIX)): named(file.read_text("utf-8"))
        for file in sorted(found, key=lambda file: file.name)
        if file.name.endswith(_SUFFIX)
    }


def module_name(name: str) -> str:
    """A module for a job, which hides none that can be imported already."""
    module = name.replace("-", "_")
    if module[0].isdigit():
        module = f"job_{module}"
    return f"{module}_job" if _is_taken(module) else module


def _is_taken(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return True
