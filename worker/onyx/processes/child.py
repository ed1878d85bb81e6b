"""A worker process under a supervisor: started, started again, and how it has ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from onyx import recorder
from onyx.log.server.parent import end_with_parent
from onyx.recorder import Recorder
from onyx.seams import SystemClock
from onyx.settings import Settings, to_environment
from onyx.structs import prepared

PROGRAM = "onyx.processes.worker_process"
RESTART_BACK_OFF_S = 0.5
_RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1_024


def worker_environment(settings: Settings) -> Mapping[str, str]:
    """The environment of a worker with these settings."""
    environment = {**os.environ, **to_environment(settings)}
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return environment


class Listeners(NamedTuple):
    """Sockets that a process is given."""

    telemetry: socket.socket | None = None
    """The metrics endpoint listens here, if it does not choose."""
    http: socket.socket | None = None
    """Requests over HTTP come here, for all processes; None: it takes none."""


@prepared
class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process is given on its command line; sockets and recorder by their descriptors."""

    peers: int
    recorder: int
    telemetry_socket: int | None = None
    http_socket: int | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the process needs open."""
        every = (self.recorder, self.telemetry_socket, self.http_socket)
        return tuple(each for each in every if each is not None)


class Child:
    """One worker process after another in the same place, with the same recorder."""

    def __init__(
        self,
        number: int,
        peers: int,
        listeners: Listeners,
        environment: Mapping[str, str],
    ) -> None:
        """Start the first one, on a thread that lives as long as it is needed.

        Args:
            number: its place among others.
            peers: virtual peers of the process.
            listeners: sockets that it is given.
            environment: of the process.
        """
        self.number = number
        self._peers = peers
        self._listeners = listeners
        self._environment = environment
        self._recorder_fd = recorder.create()
        self.process = self._spawn()
        self.recorder = Recorder(self._recorder_fd, SystemClock())
        self.started_s = time.monotonic()
        self.back_off_s = RESTART_BACK_OFF_S
        self.restart_s: float | None = None
        """When it is started again; None while it runs."""

    def start_again(self) -> None:
        """Start the next process."""
        self.process = self._spawn()
        self.started_s, self.restart_s = time.monotonic(), None

    def ended(self) -> tuple[int, int] | None:
        """Exit code, and most memory that it held in bytes; None while it runs."""
        process = self.process
        if process.returncode is None:
            # Not `poll`: only `wait4` says how much memory a process held, and only once.
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid == 0:
                return None
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_maxrss * _RSS_UNIT_BYTES
        return process.returncode, 0

    def _spawn(self) -> subprocess.Popen[bytes]:
        given = Given(
            self._peers,
            self._recorder_fd,
            _descriptor(self._listeners.telemetry),
            _descriptor(self._listeners.http),
        )
        return subprocess.Popen(
            [sys.executable, "-m", PROGRAM, msgspec.json.encode(given).decode()],
            env=self._environment,
            start_new_session=True,
            pass_fds=given.descriptors,
            preexec_fn=end_with_parent(),
        )


def _descriptor(listener: socket.socket | None) -> int | None:
    return None if listener is None else listener.fileno()
