"""`onyx kill`: stop a job for ever."""

from __future__ import annotations

from onyx.cli.change_job import change_job
from onyx.cli.options import JobArgument, JsonOption, LogPlace
from onyx.client.client import Client


def kill(
    job: JobArgument,
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """Stop a job for ever; one that has completed stays completed."""
    change_job(Client.kill, job, place, as_json)
