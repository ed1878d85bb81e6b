"""Several worker processes under one parent: Python has one interpreter lock, so CPU parallelism
comes from processes. A worker that dies is started again, with a growing wait if it keeps dying,
unless it says that this cannot help. Workers die with the supervisor, even if it is killed. The
system ties them to the thread that started them, so one thread starts, watches and ends them.

At a metrics port that was chosen the supervisor answers for several (`telemetry.processes`); each
listens on a socket that the supervisor opens and keeps, so that it is where it was after a restart.
A single one takes the port itself. At port 0, on a laptop, each takes a port of its own and
announces it.

Each process writes a flight recorder that the supervisor holds. When one has died by itself inside
user code, what that worked on is logged, and left to the next process to report.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from onyx import recorder
from onyx.cli.exit_codes import FINAL, ExitCode
from onyx.cli.processes import losses
from onyx.errors import InvariantViolated, LogReplaced, OnyxError, SettingsError, describe
from onyx.log.server.process import end_with_parent
from onyx.recorder import Recorder
from onyx.seams import SystemClock
from onyx.settings import Settings, to_environment
from onyx.telemetry.http_server import TelemetryServer
from onyx.telemetry.processes import ProcessPages

logger = logging.getLogger("onyx.supervisor")

RESTART_BACK_OFF_S = 0.5
RESTART_BACK_OFF_MAX_S = 10.0
THAWING_S = 1.0
"""SIGCONT is repeated to workers for so long: one may be about to freeze."""
STOP_MARGIN_S = 5.0
"""Beyond the time that a worker has for leaving."""


@dataclass(slots=True)
class _Child:
    number: int
    peers: int
    listener: socket.socket | None
    recorder_fd: int
    recorder: Recorder
    process: subprocess.Popen[bytes]
    started_s: float
    back_off_s: float = RESTART_BACK_OFF_S


class Supervisor:
    """One child a number of peers in `peers`."""

    def __init__(self, settings: Settings, peers: Sequence[int]) -> None:
        self._settings = settings
        self._environment = {**os.environ, **to_environment(settings)}
        self._environment.setdefault("OPENBLAS_NUM_THREADS", "1")
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self._peers = peers
        self._children: list[_Child] = []
        self._listeners: list[socket.socket | None] = [None] * len(peers)
        self._pages: TelemetryServer | None = None
        self._final: int | None = None
        self._failure: OnyxError | None = None
        self._left = True
        self._thawing_until_s = 0.0
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="onyx-supervisor", daemon=True)

    def start(self) -> None:
        """Start the processes and the endpoint.

        Raises:
            Unavailable: the endpoint's port is taken.
        """
        telemetry = self._settings.telemetry
        if telemetry.metrics_port and len(self._peers) > 1:
            opened = [socket.create_server(("127.0.0.1", 0)) for _ in self._peers]
            pages = ProcessPages([each.getsockname()[1] for each in opened], self._is_running)
            self._pages = TelemetryServer(
                telemetry.metrics_host,
                telemetry.metrics_port,
                pages.registry,
                pages.healthy,
                pages.ready,
            )
            self._listeners = [*opened]
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCONT, lambda *_: self._thaw())
        self._thread.start()
        self._started.wait()

    @property
    def failure(self) -> OnyxError | None:
        """Why no process runs any more; None while they run or are started again."""
        if self._final is None:
            return self._failure
        kind = LogReplaced if self._final == ExitCode.LOG_REPLACED else SettingsError
        return kind(
            f"a worker process ended with code {self._final}, which starting it again does not "
            "mend; its message is above"
        )

    def stop(self) -> bool:
        """Ask every child to leave the cluster; kill what does not in time. False when one did not
        leave in an orderly way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._pages is not None:
            self._pages.close()
        return self._left

    def _thaw(self) -> None:
        """Whoever has frozen this process has frozen its workers (`freezing`)."""
        self._thawing_until_s = time.monotonic() + THAWING_S

    def _is_running(self, number: int) -> bool:
        return number < len(self._children) and self._children[number].process.poll() is None

    def _end(self) -> None:
        for child in self._children:
            child.process.terminate()
        for child in self._children:
            try:
                code = child.process.wait(self._settings.leave_timeout_s + STOP_MARGIN_S)
            except subprocess.TimeoutExpired:
                child.process.kill()
                code = child.process.wait()
            self._left &= code == ExitCode.SUCCESS

    def _spawn(
        self, peers: int, listener: socket.socket | None, recorder_fd: int
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "onyx.cli", "worker"]
        command += ["--peers", str(peers), "--processes", "1"]
        command += ["--recorder", str(recorder_fd)]
        handed_over: tuple[int, ...] = (recorder_fd,)
        if listener is not None:
            handed_over += (listener.fileno(),)
            command += ["--telemetry-socket", str(listener.fileno())]
        return subprocess.Popen(
            command,
            env=self._environment,
            start_new_session=True,
            pass_fds=handed_over,
            preexec_fn=end_with_parent(),
        )

    def _watch(self) -> None:
        try:
            self._look_after_all()
        except Exception as error:
            logger.exception("a bug in Onyx: please report it")
            self._failure = InvariantViolated(f"the supervisor has ended: {describe(error)}")
            self._started.set()
            self._end()

    def _look_after_all(self) -> None:
        for number, peers in enumerate(self._peers):
            listener = self._listeners[number]
            descriptor = recorder.create()
            process = self._spawn(peers, listener, descriptor)
            made = Recorder(descriptor, SystemClock())
            now_s = time.monotonic()
            self._children.append(_Child(number, peers, listener, descriptor, made, process, now_s))
        self._started.set()
        while self._final is None and not self._stopping.wait(0.1):
            for child in self._children:
                if time.monotonic() < self._thawing_until_s:
                    child.process.send_signal(signal.SIGCONT)
                self._look_after(child)
        self._end()

    def _look_after(self, child: _Child) -> None:
        code = child.process.poll()
        if code is None:
            return
        if code in FINAL and child.recorder.orderly() == code:
            self._final = code
            return
        lived_s = time.monotonic() - child.started_s
        if lived_s >= losses.LIVED_LONG_S:
            child.back_off_s = RESTART_BACK_OFF_S
        logger.warning(
            "worker process %d ended with %s%s; it is started again in %.1f s",
            child.number,
            _described(code),
            self._examine(child, code, lived_s),
            child.back_off_s,
        )
        if not self._stopping.wait(child.back_off_s):
            child.back_off_s = min(child.back_off_s * 2, RESTART_BACK_OFF_MAX_S)
            child.process = self._spawn(child.peers, child.listener, child.recorder_fd)
            child.started_s = time.monotonic()

    def _examine(self, child: _Child, code: int, lived_s: float) -> str:
        """What a process was doing when it died by itself; left to the next one to report."""
        deaths = child.recorder.deaths() if losses.by_itself(code, child.recorder) else []
        child.recorder.clear()
        if not deaths:
            return ""
        losses.hand_over(child.recorder, losses.reports(deaths, lived_s))
        return f" inside user code: {losses.described(deaths)}"


def _described(code: int) -> str:
    if code >= 0:
        return f"code {code}"
    try:
        return f"{signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
