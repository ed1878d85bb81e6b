"""What `onyx kill`, `suspend`, `resume` and `drain` have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable

from onyx.cli.options import LogPlace
from onyx.cli.status_table import print_status
from onyx.client.client import Client
from onyx.client.connection import connect
from onyx.ids import JobId


def change_job(
    change: Callable[[Client, JobId], object],
    job: str,
    place: LogPlace,
    as_json: bool,
    wait: bool = False,
) -> None:
    """Change a job and print its status after that.

    Args:
        change: the method of the client.
        job: the job's id or its beginning, or its name.
        place: of the log.
        as_json: whether to print JSON.
        wait: whether to wait until the job has ended.

    Raises:
        SystemExit: with code 1, the job was killed while this waited.
    """
    with connect(place.settings()) as client:
        found = client.named(job)
        change(client, found)
        completed = not wait or client.wait(found)
        print_status(client.status(found), as_json)
        if not completed:
            sys.exit(1)
