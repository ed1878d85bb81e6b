"""Processes that run Spark on this machine: each ends with the one that started it, together with
all that it has started, and leaves no files.

It leads a session of its own, so a signal to its group reaches the JVM that it has started. The
kernel kills it when the thread that started it ends (Linux): a signal needs no cooperation, and a
process that is killed can ask for none. Who starts such a process does it on a thread that lives as
long as it, because the kernel looks at the thread.

Its files (shuffles, spools, copies of parts) need not survive, and may be gigabytes. A folder of
`state.local.scratch` goes with its owner, or with the next one when the owner was killed; a
temporary folder would stay, in a pod until that is removed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import IO, BinaryIO, cast

from onyx.base.parent import end_with_parent
from onyx.errors import Blocked, SettingsError
from onyx.state.local.scratch import Scratch, temporary_folder
from onyx.storage.file_system import is_full

STDERR_LINES_MAX = 20
"""Last lines that are kept, for the error when the process dies."""
TAIL_TIMEOUT_S = 5.0
"""Longest wait for the last lines of a process that was killed."""


class ProcessGroup:
    """One process and those that it starts."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """
        Args:
            variables: the whole environment of the process.

        Raises:
            OSError: the process cannot be started.
        """
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=dict(variables),
        )
        self._tail: deque[str] = deque(maxlen=STDERR_LINES_MAX)
        stderr = cast(IO[bytes], self._process.stderr)
        self._reader = Thread(target=_keep, args=(stderr, self._tail), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The pid of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def stdout(self) -> BinaryIO:
        """What the process writes."""
        return cast(BinaryIO, self._process.stdout)

    @property
    def exit_code(self) -> int | None:
        """The exit code, or minus the number of the signal; None while it runs."""
        return self._process.returncode

    @property
    def last_lines(self) -> str:
        """The last lines on stderr, indented; "nothing" if there are none."""
        return "\n  ".join(self._tail) or "nothing"

    def forget_lines(self) -> None:
        """What follows is about something new."""
        self._tail.clear()

    def write(self, data: bytes) -> None:
        """Write to its stdin at once. A process that is gone is noticed by its stdout."""
        stdin = cast(BinaryIO, self._process.stdin)
        with contextlib.suppress(OSError):
            stdin.write(data)
            stdin.flush()

    def ask_to_end(self) -> None:
        """Send SIGTERM to the process alone, so that it can cancel what runs elsewhere."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the process; False if it still runs then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.returncode is not None

    def kill(self) -> None:
        """Kill what is left of the process and of those that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill everything, wait for the end and for the last lines. Idempotent."""
        self.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            cast(BinaryIO, self._process.stdin).close()
        self._reader.join(TAIL_TIMEOUT_S)


def _keep(stream: IO[bytes], tail: deque[str]) -> None:
    with stream:
        for line in stream:
            tail.append(line.decode("utf-8", "replace").rstrip())


def dying_with_us() -> Callable[[], None]:
    """What a program that this thread starts does before it begins (`preexec_fn` of Popen). It then
    ends with this thread, and Ctrl-C in a terminal is for this process alone."""
    tie = end_with_parent()

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if tie is not None:
            tie()

    return prepare


def spark_scratch() -> Scratch:
    """A new folder in the system's temporary folder.

    Raises:
        Blocked: its disk is full.
        SettingsError: nothing can be written there.
    """
    try:
        return Scratch(temporary_folder(), "TMPDIR")
    except SettingsError as error:
        if is_full(error):
            raise Blocked(f"{error}, or free some space") from error
        raise
