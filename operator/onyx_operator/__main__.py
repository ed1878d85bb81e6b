"""Start the operator: `python -m onyx_operator`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from onyx.errors import OnyxError
from onyx.telemetry.logs import configure
from onyx_operator.application import run
from onyx_operator.settings import operator_settings


def main() -> int:
    """Run until SIGTERM or SIGINT; 2 when the settings are wrong or there is no API server."""
    try:
        settings = operator_settings(os.environ)
        telemetry = settings.engine.telemetry
        configure(telemetry.log_level, telemetry.log_format)
        logging.getLogger("onyx_operator").setLevel(telemetry.log_level.upper())
        asyncio.run(run(settings))
    except OnyxError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
