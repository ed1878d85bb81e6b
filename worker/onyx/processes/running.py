"""Runs a worker, or a supervisor of several, until it is to stop or gives up."""

from __future__ import annotations

import threading
from typing import Protocol

from onyx.errors import OnyxError, Unavailable
from onyx.processes.threads import end_within
from onyx.settings import Settings

STOP_MARGIN_S = 5.0
"""Beyond the time that a worker has for leaving."""


class Running(Protocol):
    """A worker, or a supervisor of several."""

    @property
    def failure(self) -> OnyxError | None:
        """Why it has given up for good; None while it works or tries."""
        ...

    def start(self) -> None:
        """Begin to work."""
        ...

    def stop(self) -> bool:
        """Leave the cluster in an orderly way; False when that took too long."""
        ...


def run_until(stop: threading.Event, running: Running, found: Settings) -> None:
    """Let it work until `stop` is set or it gives up.

    Raises:
        OnyxError: why it has given up.
        Unavailable: it could not leave the cluster in time.
    """
    running.start()
    while running.failure is None and not stop.wait(0.2):
        pass
    failure = running.failure
    if failure is not None:
        end_within(found.leave_timeout_s + STOP_MARGIN_S)
    left = running.stop()
    if failure is not None:
        raise failure
    if not left:
        raise Unavailable(
            f"the worker could not leave the cluster within {found.leave_timeout_s:g} s; others "
            "take over its tasks when its session has expired"
        )
