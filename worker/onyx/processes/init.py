"""Process 1 of a container, when that is `onyx`: passes signals on and buries orphans.

A Spark stage is ended with all its children, and the system gives those to process 1, which has to
ask for the exit code of each; otherwise each stage leaves two entries in the table of processes for
ever. Python does not do that, and it cannot be done beside `subprocess`, which waits for children
of its own. So process 1 forks before anything is imported and does nothing else, like `tini`, which
would have to be in every image.
"""

from __future__ import annotations

import os
import signal

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def divide(pid: int | None = None) -> None:
    """Return in the process that is to do the work; process 1 stays here until that has ended.

    Args:
        pid: of this process, None to ask.
    """
    if (os.getpid() if pid is None else pid) != 1:
        return
    # A signal that comes between the two has to wait for a handler that knows the worker.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    worker = os.fork()
    if worker == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    for number in PASSED_ON:
        signal.signal(number, lambda received, _: os.kill(worker, received))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os._exit(_bury_until(worker))


def _bury_until(worker: int) -> int:
    """Wait for all children until the worker has ended; its exit code, as a shell reports it."""
    while True:
        ended, status = os.wait()
        if ended == worker:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
