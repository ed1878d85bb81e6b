"""Runs a worker, or a supervisor of several, until it is to stop or gives up; no thread of it ends
in silence.

A thread that ends by an error leaves a process that is a member of the cluster and does part of its
work; Python prints a traceback, and for SystemExit not even that. Threads of Onyx (all have names
that begin with `onyx-`) take the process down with them, which leaves the cluster in an orderly way
if it still can, and is started again by whoever watches it. A thread of somebody else's, a plugin's
for example, is logged: whether its owner can go on without it is for the owner to say.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Protocol

from onyx.errors import InvariantViolated, OnyxError, Unavailable, describe
from onyx.processes.ends import ExitCode
from onyx.settings import Settings

STOP_MARGIN_S = 5.0
"""Beyond the time that a worker has for leaving."""
logger = logging.getLogger("onyx.worker")
OURS = "onyx-"


class LongRunning(Protocol):
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


def run_until(stop: threading.Event, running: LongRunning, found: Settings) -> None:
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


class ThreadWatch:
    """Hears of threads that end by an error, from `start` to `stop`."""

    def __init__(self) -> None:
        self.failure: OnyxError | None = None
        """Why the process cannot go on; None while all of its threads live."""
        self._before = threading.excepthook

    def start(self) -> None:
        """Take over the hook for exceptions that end a thread."""
        self._before = threading.excepthook
        threading.excepthook = self._ended

    def stop(self) -> None:
        """Put the old hook back."""
        threading.excepthook = self._before

    def _ended(self, end: threading.ExceptHookArgs) -> None:
        name = end.thread.name if end.thread is not None else "(unknown)"
        what = describe(end.exc_value) if end.exc_value is not None else end.exc_type.__name__
        if not name.startswith(OURS):
            logger.error("thread %s has ended: %s", name, what, exc_info=end.exc_value)
            return
        self.failure = InvariantViolated(f"thread {name} has ended: {what}")
        logger.critical(
            "thread %s has ended, a bug in Onyx, please report it; the process ends too: %s",
            name,
            what,
            exc_info=end.exc_value,
        )


def end_within(timeout_s: float) -> None:
    """End this process after so many seconds even if a thread of it hangs: Python waits for those
    of its pools."""
    timer = threading.Timer(timeout_s, os._exit, (int(ExitCode.FAILURE),))
    timer.daemon = True
    timer.name = "onyx-end"
    timer.start()
