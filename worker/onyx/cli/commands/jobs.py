"""`onyx jobs`: state and peers of jobs, why one waits, what killed it.

It reads the log without a `Client`: what submits jobs takes longer to import than this to answer.
"""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

from onyx.cli.command_line import Argument
from onyx.cli.options import JsonOption, TenancyOption, ZooKeeperOption, job_id
from onyx.cli.status_table import print_statuses
from onyx.client.manifests import named
from onyx.client.statuses import status_at, statuses
from onyx.history.replicas import Replicas
from onyx.log.zookeeper.log import ZooKeeperClientLog
from onyx.processes.surroundings import settings

OnlyArgument = Annotated[
    str | None, Argument("Only this job: an id or its beginning, or a name.", check=job_id)
]


def jobs(
    job: OnlyArgument = None,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs: state, peers, why a job waits, and what killed it."""
    found = settings(zookeeper, tenancy)
    with closing(ZooKeeperClientLog(found)) as log:
        replica = Replicas(log, found.job_scheduler).at()
        if job is None:
            print_statuses(statuses(log, replica), as_json)
            return
        print_statuses([status_at(log, replica, named(log, replica, job))], as_json)
