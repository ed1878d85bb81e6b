"""`onyx jobs`: state and peers of jobs, how fast they are and how far behind, why one waits, what
killed it.

It reads the log without a `Client`: what submits jobs takes longer to import than this to answer.
Workers are asked only where a job has peers; one that does not answer costs two seconds at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from time import sleep
from typing import TYPE_CHECKING, Annotated

from onyx.cli.command_line import Argument, Option
from onyx.cli.options import JsonOption, LogPlace, job_id
from onyx.cli.status_table import print_statuses, redraw_statuses
from onyx.client.manifests import named, no_jobs
from onyx.client.statuses import JobStatus, status_at, statuses
from onyx.history.replicas import Replicas
from onyx.log.interface import ClientLog
from onyx.log.opening import open_log
from onyx.settings import Settings

if TYPE_CHECKING:  # only where a job has peers are workers asked
    from onyx.client.measures import MeasureReader

INTERVAL_S = 2.0
"""Between two looks of --watch."""
OnlyArgument = Annotated[
    str | None, Argument("Only this job: an id or its beginning, or a name.", check=job_id)
]


WatchOption = Annotated[
    bool, Option("--watch -w", f"Show them again every {INTERVAL_S:g} s, until Ctrl-C.")
]


def jobs(
    job: OnlyArgument = None,
    watch: WatchOption = False,
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """List jobs: state, peers, how far and how fast, why a job waits, and what killed it."""
    found = place.to_read()
    with closing(open_log(found)) as log:
        looks = _looks(found, log, job)
        if not watch:
            known, nothing = next(looks)
            print_statuses(known, as_json, nothing)
            return
        with suppress(KeyboardInterrupt):
            for known, nothing in looks:
                redraw_statuses(known, as_json, nothing)
                sleep(INTERVAL_S)


def _looks(
    found: Settings, log: ClientLog, job: str | None
) -> Iterator[tuple[list[JobStatus], str]]:
    """The statuses at each look, and what is said if there are none. A job that is named is the
    same one at all of them."""
    replicas = Replicas(log, found.job_scheduler)
    replica = replicas.at()
    only = None if job is None else named(log, replica, job)
    reader: MeasureReader | None = None
    while True:
        known = statuses(log, replica) if only is None else [status_at(log, replica, only)]
        if any(each.peers for each in known):
            from onyx.client.measures import measure_reader, with_measures
            from onyx.client.reader import JobReader

            reader = reader or measure_reader(JobReader(log, replicas), found)
            measured = reader.read(only, replica=replica)
            known = with_measures(known, measured, replica)
        yield known, "" if known else no_jobs(log, replica, found.tenancy_id)
        replica = replicas.at(after=replica)
