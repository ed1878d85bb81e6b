"""`onyx submit`: hand a job to the cluster; `--upgrade` continues from an old job's state."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onyx.cli.exit_codes import ExitCode
from onyx.cli.job_file import EngineOption, FileArgument, read_job
from onyx.cli.options import (
    JsonOption,
    TenancyOption,
    WaitOption,
    ZooKeeperOption,
    job_id,
    settings,
)
from onyx.cli.status_table import print_statuses
from onyx.client.client import Client
from onyx.client.connection import connect
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


def submit(
    file: FileArgument,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    wait: WaitOption = False,
    upgrade: UpgradeOption = None,
    engine: EngineOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a job to a running cluster and print its id.

    With --upgrade the job continues from the state of an old job, which is killed. That happens
    only if every worker answers that it can run the new job, and if there are peers for it.
    """
    job = read_job(file, upgrade, engine)
    with connect(settings(zookeeper, tenancy)) as client:
        if dry_run:
            raise typer.Exit(_print_plan(client, job, as_json))
        submission = client.submit(job)
        if as_json:
            print(json.dumps({"job": submission.job, "position": submission.position}))
        else:
            print(submission.job)
        if wait and not client.wait(submission.job):
            print_statuses([client.status(submission.job)], as_json)
            raise typer.Exit(1)


def _print_plan(client: Client, job: Job, as_json: bool) -> ExitCode:
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
