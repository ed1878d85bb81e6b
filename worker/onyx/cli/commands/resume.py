"""`onyx resume`: let a suspended job continue."""

from __future__ import annotations

from onyx.cli.change_job import change_job
from onyx.cli.options import JobArgument, JsonOption, LogOption, TenancyOption, ZooKeeperOption
from onyx.client.client import Client


def resume(
    job: JobArgument,
    zookeeper: ZooKeeperOption = None,
    log_folder: LogOption = None,
    tenancy: TenancyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a suspended job go on from where its inputs were complete.

    Changes nothing for a job that is not suspended.
    """
    change_job(Client.resume, job, zookeeper, log_folder, tenancy, as_json)
