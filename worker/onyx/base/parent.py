"""Ties the life of a child to that of the thread that starts it, also when that is killed: before
it becomes another program, or by itself."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> Callable[[], None] | None:
    """What a child runs before it becomes another program, so that it dies with this process.

    The library is loaded before the fork: after it, only system calls are safe.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def arrange() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # In this order: a parent that dies before the request sends no signal, and is missed here.
        if os.getppid() != parent:
            os._exit(1)

    return arrange


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    Args:
        parent_pid: of the process that asked for this one. Without it this process ends now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit("the worker that asked for this process is gone")
