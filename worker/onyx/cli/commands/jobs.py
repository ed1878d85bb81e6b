"""`onyx jobs`: state and peers of jobs, how fast they are and how far behind, why one waits, what
killed it.

It reads the log without a `Client`: what submits jobs takes longer to import than this to answer.
Workers are asked only where a job has peers; one that does not answer costs two seconds at most.
"""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

from onyx.cli.command_line import Argument
from onyx.cli.options import JsonOption, LogOption, TenancyOption, ZooKeeperOption, job_id
from onyx.cli.status_table import print_statuses
from onyx.client.manifests import named
from onyx.client.statuses import status_at, statuses
from onyx.history.replicas import Replicas
from onyx.log.opening import open_log
from onyx.processes.surroundings import settings

OnlyArgument = Annotated[
    str | None, Argument("Only this job: an id or its beginning, or a name.", check=job_id)
]


def jobs(
    job: OnlyArgument = None,
    zookeeper: ZooKeeperOption = None,
    log_folder: LogOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs: state, peers, how far and how fast, why a job waits, and what killed it."""
    found = settings(zookeeper, tenancy, log_folder=log_folder)
    with closing(open_log(found)) as log:
        replicas = Replicas(log, found.job_scheduler)
        replica = replicas.at()
        only = None if job is None else named(log, replica, job)
        known = statuses(log, replica) if only is None else [status_at(log, replica, only)]
        if any(each.peers for each in known):
            from onyx.client.measures import measure_reader, with_measures
            from onyx.client.reader import JobReader

            reader = measure_reader(JobReader(log, replicas), found)
            measured = reader.read(only, replica=replica)
            known = with_measures(known, measured, replica)
        print_statuses(known, as_json)
