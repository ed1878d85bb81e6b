"""What became of a job that `onyx run` has run, as text or JSON."""

from __future__ import annotations

import json

import msgspec
from rich.console import Console

from onyx.cli.progress import Progress
from onyx.cli.status_table import print_stacks, why
from onyx.client.statuses import JobStatus
from onyx.model.job import Job


def print_end(
    job: Job, status: JobStatus, progress: Progress, console: Console, as_json: bool
) -> None:
    """Print it: JSON to standard output, text to the console."""
    # A job on Spark commits its counts with its result; workers count each attempt.
    exact = job.engine == "spark" and status.state == "completed"
    outcomes = list(status.outcomes) if exact else progress.remarks()
    if as_json:
        rows = [msgspec.to_builtins(row) for row in progress.rows(average=True)]
        print(json.dumps({**msgspec.to_builtins(status), "tasks": rows, "outcomes": outcomes}))
    else:
        if not console.is_terminal:
            console.print(progress.table(f"job {job.name}", average=True))
        note = why(status)
        console.print(
            f"job {job.name} is {status.state}{': ' + note if note else ''}",
            markup=False,
            soft_wrap=True,
        )
        print_stacks(status, console)
        for line in outcomes:
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
