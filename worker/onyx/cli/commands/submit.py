"""`onyx submit`: hand jobs to the cluster; `--upgrade` continues from an old job's state."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onyx.cli.command_line import Option
from onyx.cli.job_file import FilesArgument, read_jobs
from onyx.cli.options import (
    EngineOption,
    FromOption,
    JsonOption,
    LogPlace,
    WaitOption,
    job_id,
    saved_place,
)
from onyx.cli.status_table import print_statuses
from onyx.client.connection import connect
from onyx.errors import UserError
from onyx.model.job import Job
from onyx.processes.ends import ExitCode
from onyx.upgrade.plan import UpgradePlan, beginning_with, upgrading

UpgradeOption = Annotated[
    str | None,
    Option(
        "--upgrade",
        "The old job to upgrade, which is killed: its id or the beginning of that, or its name. "
        "Same as spec.upgrade.from, which takes an id.",
        metavar="JOB",
        check=job_id,
    ),
]
DryRunOption = Annotated[
    bool,
    Option("--dry-run", "Only show whether the job could run and what it would carry over."),
]


def submit(
    files: FilesArgument,
    place: LogPlace = LogPlace(),
    wait: WaitOption = False,
    upgrade: UpgradeOption = None,
    engine: EngineOption = None,
    begins_with: FromOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Submit jobs to a running cluster and print their ids, a line each.

    Nothing is submitted unless all files are valid.

    With --upgrade the job continues from the state of an old job, which is killed. That happens
    only if every worker answers that it can run the new job, and if there are peers for it. With
    --from it continues from a savepoint, and no job is killed.
    """
    if (upgrade or begins_with) and len(files) > 1:
        raise UserError("--upgrade and --from take one job file: one job continues from an old one")
    if upgrade and begins_with:
        raise UserError("--upgrade and --from: a job continues from one of both")
    jobs, configured = read_jobs(files, upgrade, engine), place.settings()
    if begins_with is not None:
        jobs = [beginning_with(jobs[0], saved_place(begins_with, configured))]
    with connect(configured) as client:
        if upgrade is not None:
            jobs = [upgrading(jobs[0], client.named(upgrade))]
        if dry_run:
            sys.exit(max(_print_plan(job, client.examine(job), as_json) for job in jobs))
        submissions = client.submit_all(jobs)
        for each in submissions:
            found = {"job": each.job, "position": each.position}
            print(json.dumps(found) if as_json else each.job)
        if wait:
            killed = [each.job for each in submissions if not client.wait(each.job)]
            if killed:
                print_statuses([client.status(job) for job in killed], as_json)
                sys.exit(ExitCode.FAILURE)


def _print_plan(job: Job, plan: UpgradePlan, as_json: bool) -> ExitCode:
    """Print what the job would carry over; the exit code says whether it can be submitted."""
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
        if plan.pauses:
            print(f"the inputs of job {plan.pauses} are paused until nothing of it is in flight")
        for problem in plan.problems:
            print(problem)
    return ExitCode.INVALID if plan.problems else ExitCode.SUCCESS
