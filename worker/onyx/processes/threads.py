"""No thread of a worker process ends in silence.

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

from onyx.errors import InvariantViolated, OnyxError, describe
from onyx.processes.exit_codes import ExitCode

logger = logging.getLogger("onyx.worker")

OURS = "onyx-"


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
