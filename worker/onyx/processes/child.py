"""A worker process under a supervisor: started, started again, and how it has ended."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import NamedTuple

import msgspec

from onyx.base.seams import SystemClock
from onyx.base.structs import prepared
from onyx.processes.forking import WORKER, Launcher
from onyx.processes.programs import Executable, Process
from onyx.settings import Settings, to_environment
from onyx.telemetry import recorder
from onyx.telemetry.recorder import Recorder

logger = logging.getLogger("onyx.supervisor")
NAME = "onyx-worker"
"""What the system calls a worker process; its command line may be that of its zygote."""
TELEMETRY = ("onyx.telemetry.http_server", "onyx.telemetry.metrics")
LOG, LOG_IN_ZOOKEEPER = "onyx.log.local.log", "onyx.log.zookeeper.group_log"
HTTP = ("onyx.gateway.gateway", "onyx.gateway.app")
"""What workers need besides if they serve metrics, and if they take requests over HTTP."""
RESTART_BACK_OFF_S = 0.5


def worker_environment(settings: Settings) -> Mapping[str, str]:
    """The environment of a worker with these settings."""
    environment = {**os.environ, **to_environment(settings)}
    # Nobody uses the threads that these two start when they are imported, and there is no fork of a
    # process that has some. (Arrow has this allocator, but takes another if nobody says different.)
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    environment.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    if "CS_GNU_LIBC_VERSION" in os.confstr_names:  # why: `worker_process`, on memory
        environment.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return environment


def worker_launcher(settings: Settings, shared: Sequence[str] | None = None) -> Launcher:
    """What starts workers with these settings, by forks of what has imported all that they need.

    Args:
        shared: as of `Launcher`.
    """
    modules = [WORKER, LOG if settings.log.folder else LOG_IN_ZOOKEEPER]
    if settings.telemetry.metrics_port is not None:
        modules += TELEMETRY
    if settings.http.port is not None and find_spec("uvicorn") is not None:
        modules += HTTP
    return Launcher(worker_environment(settings), modules, shared)


class Listeners(NamedTuple):
    """Sockets that a process is given."""

    telemetry: socket.socket | None = None
    """The metrics endpoint listens here, if it does not choose."""
    http: socket.socket | None = None
    """Requests over HTTP come here, for all processes; None: it takes none."""


@prepared
class WorkerArguments(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process is given on its command line; sockets and recorder by their descriptors."""

    peers: int
    supervisor: int
    """The process that stands for this one: who freezes it means both."""
    recorder: int
    telemetry_socket: int | None = None
    http_socket: int | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the process needs open."""
        every = (self.recorder, self.telemetry_socket, self.http_socket)
        return tuple(each for each in every if each is not None)


class SupervisedWorker:
    """One worker process after another in the same place, with the same recorder.

    Args:
        number: its place among others.
        peers: virtual peers of the process.
        listeners: sockets that it is given.
        environment: of the process.
        launcher: what starts it.
        recorder_folder: where its recorder lies; empty: in memory.
    """

    def __init__(
        self,
        number: int,
        peers: int,
        listeners: Listeners,
        environment: Mapping[str, str],
        launcher: Launcher,
        recorder_folder: str = "",
    ) -> None:
        self.number = number
        self._environment = environment
        self._launcher = launcher
        self._recorder_path, descriptor = _new_recorder(recorder_folder, number)
        self.recorder = Recorder(descriptor, SystemClock())
        self._given = WorkerArguments(
            peers,
            os.getpid(),
            descriptor,
            _descriptor(listeners.telemetry),
            _descriptor(listeners.http),
        )
        self.process: Process | None = None
        """The one that runs, or ran last; None before the first."""
        self.started_s = 0.0
        self.back_off_s = RESTART_BACK_OFF_S
        self.restart_s: float | None = 0.0
        """When it is started; None while it runs."""

    def start(self) -> None:
        """Start the next process, on a thread that lives as long as it is needed."""
        arguments = [msgspec.json.encode(self._given).decode()]
        self.process = self._launcher.launch(
            Executable(WORKER, arguments, self._environment, self._given.descriptors)
        )
        self.started_s, self.restart_s = time.monotonic(), None

    def forget(self) -> None:
        """No process follows any more. What nobody has reported yet stays for the next
        supervisor."""
        if self._recorder_path and not self.recorder.losses():
            with suppress(OSError):
                os.unlink(self._recorder_path)

    def pause(self, seconds: float) -> None:
        """Let so much time pass, or less if the process that runs ends."""
        assert self.process is not None, "it has been started"
        self.process.pause(seconds)

    @property
    def is_running(self) -> bool:
        """Whether a process runs, as far as was looked."""
        return self.process is not None and self.process.returncode is None


def _new_recorder(folder: str, number: int) -> tuple[str, int]:
    """Where the recorder of a process is, and its descriptor; in memory, if a file cannot be."""
    if folder:
        path = os.path.join(folder, f"worker-{number}{recorder.SUFFIX}")
        try:
            return path, recorder.create(path)
        except OSError as error:
            logger.warning(
                "the flight recorder of process %d is in memory and does not outlive the "
                "container, because %s cannot be made (ONYX_SUPERVISOR_RECORDER_FOLDER): %s",
                number,
                path,
                error,
            )
    return "", recorder.create()


def _descriptor(listener: socket.socket | None) -> int | None:
    return None if listener is None else listener.fileno()
