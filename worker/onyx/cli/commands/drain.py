"""`onyx drain`: let a job finish what it has read, and complete."""

from __future__ import annotations

from onyx.cli.change_job import change_job
from onyx.cli.options import JobArgument, JsonOption, LogPlace, WaitOption
from onyx.client.client import Client


def drain(
    job: JobArgument,
    place: LogPlace = LogPlace(),
    wait: WaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let a job finish what it has read, and complete.

    It reads nothing new. There is no way back. A suspended job does this when it is resumed.
    """
    change_job(Client.drain, job, place, as_json, wait)
