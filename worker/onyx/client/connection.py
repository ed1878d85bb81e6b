"""A client by the settings of a process.

`api` offers it too. Commands that only ask or change something take it from here, because `api`
knows peers and their tasks, and so takes a second of CPU to import.
"""

from __future__ import annotations

from onyx.client.client import Client
from onyx.history.archive import open_archive
from onyx.log.zookeeper.client_log import ZooKeeperClientLog
from onyx.settings import Settings
from onyx.submission.plugin_options import wrong_options
from onyx.submission.sql_checks import wrong_sql

CHECKS = (wrong_options, wrong_sql)
"""What is checked of a job that is submitted, besides what the log says."""


def connect(settings: Settings) -> Client:
    """A client for several calls; close it, or use it as a context manager."""
    log = ZooKeeperClientLog(settings)
    try:
        archive = open_archive(settings, log)
        return Client(log, settings.job_scheduler, archive, CHECKS)
    except BaseException:
        log.close()
        raise
