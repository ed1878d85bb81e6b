"""`onyx suspend`: give the peers of a job to others."""

from __future__ import annotations

from onyx.cli.change_job import change_job
from onyx.cli.options import JobArgument, JsonOption, LogOption, TenancyOption, ZooKeeperOption
from onyx.client.client import Client


def suspend(
    job: JobArgument,
    zookeeper: ZooKeeperOption = None,
    log_folder: LogOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give the peers of a job to others until `onyx resume`.

    It keeps its number and what it has done. Repeats change nothing.
    """
    change_job(Client.suspend, job, zookeeper, log_folder, tenancy, as_json)
