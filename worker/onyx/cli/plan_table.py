"""What a job would carry over from the one that it upgrades, as a table or JSON."""

from __future__ import annotations

import json

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onyx.model.job import Job
from onyx.processes.exit_codes import ExitCode
from onyx.upgrade.plan import Plan


def print_plan(job: Job, plan: Plan, as_json: bool) -> ExitCode:
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
        for problem in plan.problems:
            print(problem)
    return ExitCode.INVALID if plan.problems else ExitCode.SUCCESS
