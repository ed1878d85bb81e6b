"""How commands print the statuses of jobs."""

from __future__ import annotations

import json
from itertools import chain

import msgspec
from rich.console import Console
from rich.table import Column, Table

from onyx.client import failure_text
from onyx.client.statuses import JobStatus

STACKS_MAX = 4
"""Stacks of functions that do not return, printed of one job."""


def print_status(status: JobStatus, as_json: bool) -> None:
    """Print one status after a command. Peers may have acted on the command already."""
    if as_json:
        print(json.dumps(msgspec.to_builtins(status)))
        return
    note = remarks(status)
    print(f"job {status.id} is {status.state}{': ' + note if note else ''}")


def print_statuses(statuses: list[JobStatus], as_json: bool) -> None:
    """Print statuses as a table; of a single one also the stacks."""
    if as_json:
        print(json.dumps([msgspec.to_builtins(status) for status in statuses]))
        return
    if not statuses:
        print("no jobs yet: submit one with `onyx submit job.yaml`")
        return
    whole_id = Column("job", no_wrap=True, min_width=max(len(each.id) for each in statuses))
    table = Table(whole_id, "name", "state", "engine", "peers", "remarks")
    for status in statuses:
        peers = str(status.peers)
        table.add_row(status.id, status.name, status.state, status.engine, peers, remarks(status))
    console = Console()
    console.print(table)
    if len(statuses) == 1:
        print_stacks(statuses[0], console)


def print_stacks(status: JobStatus, console: Console) -> None:
    """Print where in the user's code the error was raised that killed a job, and for which segment;
    or where functions are that do not return."""
    stacks = [failure_text.stack(each) for each in status.stalls if each.stack][:STACKS_MAX]
    for line in (*failure_text.places(status.exception or {}), *chain.from_iterable(stacks)):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def remarks(status: JobStatus) -> str:
    """Why a job waits, why it does not advance, or what killed it."""
    if status.exception is None:
        return status.waiting_for or status.stalled
    return failure_text.sentence(status.exception)
