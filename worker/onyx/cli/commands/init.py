"""`onyx init`: a project that runs at once, to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

from onyx.cli.command_line import Argument
from onyx.cli.project import write_project

KindArgument = Annotated[Literal["job", "plugin"], Argument("What it is to be.")]
FolderArgument = Annotated[Path, Argument("Where; it is made if it is not there.")]


def init(kind: KindArgument = "job", folder: FolderArgument = Path()) -> None:
    """Write a job, or a plugin with a job, with tests and a page that says how to run it.

    The job and its module are named after the folder. Files that are there are not touched.
    """
    for path in write_project(kind, folder):
        print(f"wrote {path}")
    where = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    print(f"now: {where}onyx run job.yaml")
