"""Start the operator: `python -m onyx_operator`."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys

from onyx.errors import OnyxError
from onyx.telemetry.logs import configure
from onyx_operator.api_client import cluster_configuration  # before what imports more of it
from onyx_operator.application import run
from onyx_operator.settings import operator_settings

COLLECTOR_THRESHOLDS = (20_000, 20, 50)
"""Thresholds of the garbage collector: at Python's own 700 each burst of events walks all objects
many times, though they are freed by reference counts."""


def main() -> int:
    """Run until SIGTERM or SIGINT; 2 when the settings are wrong or there is no API server."""
    try:
        settings = operator_settings(os.environ)
        telemetry = settings.engine.telemetry
        configure(telemetry.log_level, telemetry.log_format)
        logging.getLogger("onyx_operator").setLevel(telemetry.log_level.upper())
        _tune_collector()
        asyncio.run(run(settings, cluster_configuration()))
    except OnyxError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _tune_collector() -> None:
    """What exists now lives as long as the process; objects of Kubernetes are trees."""
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


if __name__ == "__main__":
    sys.exit(main())
