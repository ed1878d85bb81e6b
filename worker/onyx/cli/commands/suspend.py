"""`onyx suspend`: give the peers of a job to others."""

from __future__ import annotations

from onyx.cli.change_job import change_job
from onyx.cli.options import JobArgument, JsonOption, LogPlace
from onyx.client.client import Client


def suspend(
    job: JobArgument,
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """Give the peers of a job to others until `onyx resume`.

    It keeps its number and what it has done. Repeats change nothing.
    """
    change_job(Client.suspend, job, place, as_json)
