"""`onyx submit --dry-run`: whether a job could run; with `--upgrade` what it would carry over."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onyx.cli.exit_codes import ExitCode
from onyx.cli.options import job_id
from onyx.client.client import Client
from onyx.model.job import Job

UpgradeOption = Annotated[
    str | None,
    typer.Option(
        "--upgrade",
        help="Id of the old job to upgrade: it is killed. Same as spec.upgrade.from.",
        metavar="JOB",
        callback=job_id,
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Only show whether the job could run and what it would carry over."
    ),
]


def show_plan(client: Client, job: Job, as_json: bool) -> ExitCode:
    """Print what the job would carry over; the exit code says whether it can be submitted."""
    plan = client.examine(job)
    if as_json:
        print(json.dumps(msgspec.to_builtins(plan)))
    elif not plan.steps:
        print(f"job {job.name} begins anew: it upgrades no job")
    else:
        table = Table("part", "name", "state", "remarks")
        for step in plan.steps:
            # As Text, for `[5, minutes]` in a str would be taken for markup.
            table.add_row(*map(Text, (step.part, step.name, step.fate, step.why)))
        Console().print(table)
    if not as_json:
        for problem in plan.problems:
            print(problem)
    return ExitCode.INVALID if plan.problems else ExitCode.SUCCESS
