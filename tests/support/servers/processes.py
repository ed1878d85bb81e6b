"""The processes that tests start: calling the command, ending what goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from onyx.settings import Settings, to_environment

STOP_S = 60.0
COMMAND_S = 90.0


def onyx(settings: Settings, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command with these settings, as a person calls it on a worker's machine."""
    return subprocess.run(
        [sys.executable, "-m", "onyx.cli", *map(str, arguments)],
        env={**os.environ, **to_environment(settings)},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


def stop(process: subprocess.Popen[Any]) -> int:
    """SIGTERM; the exit code. One that does not end is killed, and fails the test."""
    process.terminate()
    try:
        return process.wait(STOP_S)
    finally:
        process.kill()
        process.wait()
