"""`onyx kill`: stop a job for ever."""

from __future__ import annotations

from onyx.cli.change_job import change_job
from onyx.cli.options import JobArgument, JsonOption, LogOption, TenancyOption, ZooKeeperOption
from onyx.client.client import Client


def kill(
    job: JobArgument,
    zookeeper: ZooKeeperOption = None,
    log_folder: LogOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop a job for ever; one that has completed stays completed."""
    change_job(Client.kill, job, zookeeper, log_folder, tenancy, as_json)
