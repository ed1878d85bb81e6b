"""Processes that end with the one that started them, however that ends.

The kernel kills them (Linux): a signal needs no cooperation, and a process that is killed can ask
for none. Who starts such a process must do it on a thread that lives long enough, because the
kernel looks at the thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    Args:
        parent_pid: of the process that asked for this one. Without it this process ends now.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit("the worker that asked for this process is gone")


def dying_with_us() -> Callable[[], None]:
    """What a program that this thread starts does before it begins (`preexec_fn` of Popen). It then
    ends with this thread, and Ctrl-C in a terminal is for this process alone."""
    libc, parent_pid = ctypes.CDLL(None), os.getpid()

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.platform == "linux":
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent_pid:
                os._exit(1)

    return prepare
