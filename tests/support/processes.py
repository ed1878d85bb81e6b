"""Ending the processes that tests have started."""

from __future__ import annotations

import subprocess
from typing import Any

STOP_S = 60.0


def stop(process: subprocess.Popen[Any]) -> int:
    """SIGTERM; the exit code. One that does not end is killed, and fails the test."""
    process.terminate()
    try:
        return process.wait(STOP_S)
    finally:
        process.kill()
        process.wait()
