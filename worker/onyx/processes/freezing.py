"""A worker process that freezes when its supervisor is frozen.

SIGSTOP to a worker, by the process id that its user knows, goes to the supervisor and cannot be
passed on. It has to mean the worker nevertheless: its session expires, and others take over. So the
worker looks at the state of its supervisor, which wakes it after SIGCONT.
"""

from __future__ import annotations

import os
import signal
import threading
import time

LOOK_INTERVAL_S = 0.1


def freeze_with(supervisor: int) -> None:
    """Look from now on, on a thread of its own; nothing where there is no /proc."""
    if _state(supervisor):
        threading.Thread(
            target=_watch, args=(supervisor,), name="onyx-freezing", daemon=True
        ).start()


def _watch(supervisor: int) -> None:
    while True:
        time.sleep(LOOK_INTERVAL_S)
        if _state(supervisor) == "T":
            os.kill(os.getpid(), signal.SIGSTOP)


def _state(process: int) -> str:
    """The letter that the kernel has for it; empty when there is none."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""
