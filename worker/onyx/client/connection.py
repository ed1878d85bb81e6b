"""A client by the settings of a process.

`api` offers it too. Commands that only ask or change something take it from here, because `api`
knows peers and their tasks, and so takes a second of CPU to import.
"""

from __future__ import annotations

from collections.abc import Callable

from onyx.base.on_demand import OnDemand
from onyx.client.client import Client
from onyx.history.archive import open_archive
from onyx.log.acts import user_of_process
from onyx.log.opening import open_log
from onyx.settings import Settings, TelemetrySettings
from onyx.submission.job_checks import wrong_options, wrong_sql

_FOLLOW = OnDemand[Callable[[TelemetrySettings], None]]("onyx.telemetry.logs:follow_settings")
CHECKS = (wrong_options, wrong_sql)
"""What is checked of a job that is submitted, besides what the log says."""


def connect(settings: Settings) -> Client:
    """A client for several calls; close it, or use it as a context manager."""
    if settings.telemetry.log_file or settings.telemetry.log_config:
        _FOLLOW.load()(settings.telemetry)  # a command has no log but for its lines of audit
    log = open_log(settings)
    try:
        archive = open_archive(settings, log)
        tenancy, by = settings.tenancy_id, user_of_process()
        return Client(log, settings.job_scheduler, archive, CHECKS, tenancy, by, settings.log)
    except BaseException:
        log.close()
        raise
