"""Programs of ours in processes of their own: what is started, and the handle of what runs.

A program is a module with a function `main`: `python -m MODULE ARGUMENTS` by `exec`, or the call of
`main` in the fork of a process that has imported it (`forking`). Whoever watches it cannot tell
the two apart.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from onyx.base.parent import end_with_parent

_RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1_024
_LOOK_MIN_S, _LOOK_MAX_S = 0.000_5, 0.05


class Executable(NamedTuple):
    """A program with all that it is started with."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    descriptors: Sequence[int] = ()
    """What it is given of this process, under the same numbers; it gets nothing else."""
    folder: Path | None = None
    """Where it runs; where this process started, if None."""
    streams: tuple[int, int, int] | None = None
    """Its standard input, output and error; where those of this process go, if None."""


class ProcessEnd(NamedTuple):
    """How a process has ended."""

    code: int
    """Its exit code; negative: the signal."""
    memory_bytes: int
    """Most memory that it held."""

    @classmethod
    def of(cls, status: int, rss_max: int) -> ProcessEnd:
        """The end of a process as `wait4` reports it."""
        return cls(os.waitstatus_to_exitcode(status), rss_max * _RSS_UNIT_BYTES)


class Process(ABC):
    """A process that this one has asked for; a `subprocess.Popen` in small. Nobody else's process
    ever has its number: the entry of one that has ended stays until it is asked for here, once.
    Safe from any thread."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._looks = threading.Lock()
        self.ended: ProcessEnd | None = None
        """How it has ended, once that was found out by `poll` or `wait`."""

    @property
    def returncode(self) -> int | None:
        """Exit code, as far as this process knows."""
        return None if self.ended is None else self.ended.code

    def poll(self) -> int | None:
        """Exit code; None while it runs."""
        with self._looks:
            return self._code()

    def wait(self, timeout_s: float | None = None) -> int:
        """Exit code, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not in time.
        """
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        look_s = _LOOK_MIN_S
        while (code := self.poll()) is None:
            if ends_s is not None and time.monotonic() >= ends_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout_s or 0.0)
            self.pause(look_s)
            look_s = min(2 * look_s, _LOOK_MAX_S)
        return code

    def pause(self, seconds: float) -> None:
        """Let so much time pass, or less if it ends and that can be seen."""
        time.sleep(seconds)

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with self._looks:
            if self._code() is None:
                self._send(number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _code(self) -> int | None:
        if self.ended is None:
            self.ended = self._look()
        return self.returncode

    def _send(self, number: int) -> None:
        os.kill(self.pid, number)

    @abstractmethod
    def _look(self) -> ProcessEnd | None:
        """Whether it has ended, and how; then its entry is gone."""


class DirectChild(Process):
    """A child of this process.

    Args:
        pid: of it.
        started: as `subprocess` knows it, if that has started it.
    """

    def __init__(self, pid: int, started: subprocess.Popen[bytes] | None = None) -> None:
        super().__init__(pid)
        self._started = started

    def _look(self) -> ProcessEnd | None:
        # Not `Popen.poll`: only `wait4` says how much memory a process held, and only once.
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        ended = ProcessEnd.of(status, usage.ru_maxrss)
        if self._started is not None:
            self._started.returncode = ended.code
        return ended


def how(code: int) -> str:
    """An exit code, or the signal of a negative one, in words."""
    if code >= 0:
        return f"code {code}"
    try:
        return f"{signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def name_process(name: str) -> None:
    """What `top`, `ps -o comm` and the kernel's reports call this process, in 15 characters: a fork
    has the command line of its zygote. Without effect where there is no /proc."""
    comm = Path("/proc/self/comm")
    if comm.exists():
        comm.write_text(name, encoding="ascii")


def execute(program: Executable) -> Process:
    """Start it with an interpreter of its own; it dies with the thread that calls this."""
    stdin, stdout, stderr = program.streams or (None, None, None)
    started = subprocess.Popen(
        [sys.executable, "-m", program.module, *program.arguments],
        env=program.environment,
        cwd=program.folder,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=program.descriptors,
        preexec_fn=end_with_parent(),
    )
    return DirectChild(started.pid, started)
