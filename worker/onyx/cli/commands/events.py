"""`onyx events`: who has done what to jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

from onyx.cli.command_line import Argument
from onyx.cli.options import JsonOption, TenancyOption, ZooKeeperOption, job_id
from onyx.client.connection import connect
from onyx.ids import Position
from onyx.log.acts import ACTS, jobs_of
from onyx.processes.surroundings import settings
from onyx.replica.authors import UNKNOWN, WORKER, author
from onyx.replica.command import Entry

JobIdArgument = Annotated[
    str | None, Argument("The id of a job or its beginning; all jobs without it.", check=job_id)
]


def events(
    job: JobIdArgument = None,
    zookeeper: ZooKeeperOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print who has submitted, killed, suspended, resumed, drained, changed and forgotten jobs.

    It reads the log, and what the archive has of it (`ONYX_HISTORY_ARCHIVE`).
    """
    with connect(settings(zookeeper, tenancy)) as client:
        for event in acts(client.entries(Position(-1)), job or ""):
            if as_json:
                print(json.dumps(event), flush=True)
            else:
                print("{time:<24}  {by:<32} {what:<12} {job}".format(**event), flush=True)


def acts(entries: Iterator[Entry], job: str) -> Iterator[dict[str, Any]]:
    """What was done to jobs whose ids begin so."""
    for entry in entries:
        command = entry.command
        if isinstance(command, ACTS):
            done = {
                "time": _time(entry.at_ms),
                "by": entry.by or author(WORKER, entry.writer),
                "what": command.NAME,
                "position": entry.position,
            }
            found = (each for each in jobs_of(command) if each.startswith(job))
            yield from ({**done, "job": each} for each in found)


def _time(at_ms: int) -> str:
    if not at_ms:
        return UNKNOWN
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
