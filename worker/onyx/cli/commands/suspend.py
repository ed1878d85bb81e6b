"""`onyx suspend`: give the peers of a job to others; `onyx resume`: let it continue."""

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


def resume(
    job: JobArgument,
    place: LogPlace = LogPlace(),
    as_json: JsonOption = False,
) -> None:
    """Let a suspended job go on from where its inputs were complete.

    Changes nothing for a job that is not suspended.
    """
    change_job(Client.resume, job, place, as_json)
