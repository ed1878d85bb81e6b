"""`onyx submit`, `kill`, `suspend`, `resume`, `drain` and `jobs`."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Column, Table

from onyx import api
from onyx.cli.commands.submit import DryRunOption, UpgradeOption, show_plan
from onyx.cli.commands.validate import FileArgument, read_job
from onyx.cli.options import (
    JobArgument,
    JsonOption,
    TenancyOption,
    ZooKeeperOption,
    job_id,
    settings,
)
from onyx.client import failure_text
from onyx.client.client import Client, JobStatus
from onyx.ids import JobId

STACKS_MAX = 4
"""Of functions that do not come back, shown of one job."""

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")]


def submit(
    file: FileArgument,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    wait: WaitOption = False,
    upgrade: UpgradeOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Submit a job to a running cluster and print its id.

    With --upgrade the job continues from the state of an old job, which is killed. That happens
    only if every worker answers that it can run the new job, and if there are peers for it.
    """
    job = read_job(file, upgrade)
    with api.connect(settings(zookeeper, tenancy)) as client:
        if dry_run:
            raise typer.Exit(show_plan(client, job, as_json))
        submission = client.submit(job)
        if as_json:
            print(json.dumps({"job": submission.job, "position": submission.position}))
        else:
            print(submission.job)
        if wait and not client.wait(submission.job):
            _show([client.status(submission.job)], as_json)
            raise typer.Exit(1)


def kill(
    job: JobArgument,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a job for ever; one that has completed stays completed."""
    _change(Client.kill, job, zookeeper, tenancy, as_json)


def suspend(
    job: JobArgument,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give the peers of a job to others until `onyx resume`.

    It keeps its place and what it has done. Repeats change nothing.
    """
    _change(Client.suspend, job, zookeeper, tenancy, as_json)


def resume(
    job: JobArgument,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a suspended job go on from where its inputs were complete.

    Changes nothing for a job that is not suspended.
    """
    _change(Client.resume, job, zookeeper, tenancy, as_json)


def drain(
    job: JobArgument,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    wait: WaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let a job finish what it has read, and complete.

    It reads nothing new. There is no way back. A suspended job does this when it is resumed.
    """
    _change(Client.drain, job, zookeeper, tenancy, as_json, wait)


def list_jobs(
    job: Annotated[str | None, typer.Argument(help="Only this job.", callback=job_id)] = None,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs: state, peers, why a job waits, and what killed it."""
    with api.connect(settings(zookeeper, tenancy)) as client:
        if job is None:
            _show(client.statuses(), as_json)
            return
        client.job(JobId(job))
        _show([client.status(JobId(job))], as_json)


def _change(
    command: Callable[[Client, JobId], None],
    job: str,
    zookeeper: str | None,
    tenancy: str | None,
    as_json: bool,
    wait: bool = False,
) -> None:
    """Give a command about a job, and tell how the job is then."""
    with api.connect(settings(zookeeper, tenancy)) as client:
        command(client, JobId(job))
        completed = not wait or client.wait(JobId(job))
        _tell(client.status(JobId(job)), as_json)
        if not completed:
            raise typer.Exit(1)


def _tell(status: JobStatus, as_json: bool) -> None:
    """How the job is after a command; a peer may already have done more than was asked."""
    if as_json:
        print(json.dumps(msgspec.to_builtins(status)))
        return
    note = remarks(status)
    print(f"job {status.id} is {status.state}{': ' + note if note else ''}")


def _show(statuses: list[JobStatus], as_json: bool) -> None:
    if as_json:
        print(json.dumps([msgspec.to_builtins(status) for status in statuses]))
        return
    if not statuses:
        print("no jobs yet: `onyx submit job.yaml` hands one in")
        return
    whole_id = Column("job", no_wrap=True, min_width=max(len(each.id) for each in statuses))
    table = Table(whole_id, "name", "state", "peers", "remarks")
    for status in statuses:
        table.add_row(status.id, status.name, status.state, str(status.peers), remarks(status))
    console = Console()
    console.print(table)
    if len(statuses) == 1:
        show_exception(statuses[0], console)


def show_exception(status: JobStatus, console: Console) -> None:
    """Where in the user's code the error came from that killed a job, and for which segment; or
    where the code is that does not come back."""
    stacks = [failure_text.stack(each) for each in status.stalls if each.stack][:STACKS_MAX]
    for line in (*failure_text.places(status.exception or {}), *chain.from_iterable(stacks)):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def remarks(status: JobStatus) -> str:
    """Why a job waits or what killed it, for people."""
    if status.exception is None:
        return status.waiting_for or status.stalled
    return failure_text.sentence(status.exception)
