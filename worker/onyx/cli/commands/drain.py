"""`onyx drain`: let a job finish what it has read, and complete."""

from __future__ import annotations

from onyx.cli.change_job import change_job
from onyx.cli.options import (
    JobArgument,
    JsonOption,
    LogOption,
    TenancyOption,
    WaitOption,
    ZooKeeperOption,
)
from onyx.client.client import Client


def drain(
    job: JobArgument,
    zookeeper: ZooKeeperOption = None,
    log_folder: LogOption = None,
    tenancy: TenancyOption = None,
    wait: WaitOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let a job finish what it has read, and complete.

    It reads nothing new. There is no way back. A suspended job does this when it is resumed.
    """
    change_job(Client.drain, job, zookeeper, log_folder, tenancy, as_json, wait)
