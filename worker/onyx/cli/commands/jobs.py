"""`onyx jobs`: state and peers of jobs, why one waits, what killed it."""

from __future__ import annotations

from typing import Annotated

import typer

from onyx.cli.options import JsonOption, TenancyOption, ZooKeeperOption, job_id, settings
from onyx.cli.status_table import print_statuses
from onyx.client.connection import connect
from onyx.ids import JobId


def jobs(
    job: Annotated[str | None, typer.Argument(help="Only this job.", callback=job_id)] = None,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs: state, peers, why a job waits, and what killed it."""
    with connect(settings(zookeeper, tenancy)) as client:
        if job is None:
            print_statuses(client.statuses(), as_json)
            return
        client.job(JobId(job))
        print_statuses([client.status(JobId(job))], as_json)
