"""Running commands and waiting, each with a limit; daemons that outlive the command that starts
them. A daemon is its own process group, and the file with its pid is in the state folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.layout import LOGS, STATE

COMMAND_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.1
_LOG_TAIL_LINES = 15


class ClusterError(Exception):
    """The cluster cannot be brought up; says what to do."""


def run(
    *command: str | os.PathLike[str], timeout_s: float = COMMAND_TIMEOUT_S, **options: object
) -> str:
    """Run a command to its end; its output.

    Raises:
        ClusterError: it failed or took longer than `timeout_s`.
    """
    line = " ".join(map(str, command))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, **options
        )  # type: ignore[call-overload]
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"not done after {timeout_s:.0f} s: {line}") from error
    if done.returncode != 0:
        raise ClusterError(f"failed: {line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return str(done.stdout)


def succeeds(*command: str | os.PathLike[str]) -> bool:
    """Whether a command ends well."""
    try:
        run(*command)
    except ClusterError:
        return False
    return True


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Poll until something holds.

    Raises:
        ClusterError: it does not hold after `timeout_s`.
    """
    end_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end_s:
            raise ClusterError(f"after {timeout_s:.0f} s still not: {what}")
        time.sleep(_POLL_S)


def write(path: Path, text: str) -> Path:
    """Write a file unless it says that already: some daemons end when their file is touched."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


@dataclass(frozen=True)
class Daemon:
    """A process of the cluster."""

    name: str
    command: Sequence[str | os.PathLike[str]]
    ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Start it unless it runs, and wait until it is ready.

        Raises:
            ClusterError: it ended or did not become ready; shows the end of its log.
        """
        if _pid(self.name) is None:
            LOGS.mkdir(parents=True, exist_ok=True)
            with open(LOGS / f"{self.name}.log", "ab") as log:
                process = subprocess.Popen(
                    self.command,
                    env={**os.environ, **self.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            (STATE / f"{self.name}.pid").write_text(f"{process.pid} {_started(process.pid)}")
        try:
            wait_until(lambda: self._ended() or self.ready(), f"{self.name} is ready")
        except ClusterError as error:
            raise ClusterError(f"{error}\n{_log_tail(self.name)}") from error
        if self._ended():
            raise ClusterError(f"{self.name} has ended\n{_log_tail(self.name)}")

    def _ended(self) -> bool:
        return _pid(self.name) is None


def daemons() -> list[str]:
    """Names of those that run."""
    return sorted(path.stem for path in STATE.glob("*.pid") if _pid(path.stem) is not None)


def was_started(name: str) -> bool:
    """Whether it has been started and not stopped since, though it may have ended by itself."""
    return (STATE / f"{name}.pid").exists()


def stop_daemon(name: str) -> None:
    """End it and what it has started; harmless when it does not run."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        pid = _pid(name)
        if pid is None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
        with contextlib.suppress(ClusterError):
            wait_until(lambda: _pid(name) is None, f"{name} has ended", STOP_TIMEOUT_S)
    (STATE / f"{name}.pid").unlink(missing_ok=True)


def daemon_pid(name: str) -> int | None:
    """Process id of a daemon that runs."""
    return _pid(name)


def _pid(name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        pid, started = (STATE / f"{name}.pid").read_text().split()
        _reap(int(pid))
        if _started(int(pid)) == started:
            return int(pid)
    return None


def _reap(pid: int) -> None:
    """A child of ours that has ended is no longer there."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _started(pid: int) -> str:
    """When a process has started, in ticks: pids come again, with another time.

    Raises:
        ProcessLookupError: it has ended, though its parent may not have asked yet.
    """
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return fields[19]


def _log_tail(name: str) -> str:
    lines = (LOGS / f"{name}.log").read_text(errors="replace").splitlines()
    return "\n".join([f"the end of {LOGS / name}.log:", *lines[-_LOG_TAIL_LINES:]])
